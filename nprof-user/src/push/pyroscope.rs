//! What Pyroscope's `push.v1.PusherService` takes, by the Connect protocol: pprof profiles and their labels.

use prost::Message;

use crate::model::{About, JvmLabels, ProfileMode};

/// Where it is taken.
pub(super) const PATH: &str = "/push.v1.PusherService/Push";

/// `push.v1.PushRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) series: Vec<RawProfileSeries>,
}

/// Profiles with the same labels.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RawProfileSeries {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<RawSample>,
}

/// A label.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LabelPair {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// A profile, as pprof writes it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) raw_profile: Vec<u8>,
}

/// A request with one profile. Its type is what Pyroscope has for samples of the CPU, and one of its own for native calls; the
/// JVM's first label is the service. Labels of the user win over others of the same name.
pub(super) fn request(about: &About, jvm: &JvmLabels, pprof: Vec<u8>) -> Vec<u8> {
    let kind = match about.mode {
        ProfileMode::OnCpu => "process_cpu",
        ProfileMode::Calls => "native_calls",
    };
    let service = jvm.0.first().map_or(about.main.as_str(), |(_, value)| value);
    let own = [("__name__", kind), ("service_name", service), ("host_name", about.host.as_str())];
    let is_free = |name: &str| jvm.0.iter().all(|(of_jvm, _)| of_jvm != name);
    let own = own.into_iter().filter(|(name, _)| is_free(name));
    let of_jvm = jvm.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let pair = |(name, value): (&str, &str)| LabelPair { name: name.to_owned(), value: value.to_owned() };
    let mut labels: Vec<LabelPair> = own.chain(of_jvm).map(pair).collect();
    labels.sort_by(|a, b| a.name.cmp(&b.name));
    let samples = vec![RawSample { raw_profile: pprof }];
    PushRequest { series: vec![RawProfileSeries { labels, samples }] }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(mode: ProfileMode, jvm: &[(&str, &str)]) -> String {
        let about = About { mode, main: "Main".to_owned(), host: "box".to_owned(), ..About::default() };
        let jvm = JvmLabels(jvm.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect());
        let [series] =
            <[_; 1]>::try_from(PushRequest::decode(&request(&about, &jvm, vec![7])[..]).unwrap().series).unwrap();
        assert_eq!(series.samples, [RawSample { raw_profile: vec![7] }]);
        series.labels.iter().map(|pair| format!("{}={}", pair.name, pair.value)).collect::<Vec<_>>().join(" ")
    }

    /// Check the labels of both kinds of profiles, in their order, each name once.
    #[test]
    fn labels_are_unique_and_sorted() {
        let calls = labels(ProfileMode::Calls, &[("jvm", "web"), ("app", "shop")]);
        assert_eq!(calls, "__name__=native_calls app=shop host_name=box jvm=web service_name=web");
        let cpu = labels(ProfileMode::OnCpu, &[("jvm", "web"), ("service_name", "shop")]);
        assert_eq!(cpu, "__name__=process_cpu host_name=box jvm=web service_name=shop");
        assert_eq!(labels(ProfileMode::OnCpu, &[]), "__name__=process_cpu host_name=box service_name=Main");
    }
}
