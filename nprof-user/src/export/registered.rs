//! A family of JVMs or of nprof itself as a metric that a registry of the crate `prometheus-client` holds.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::{
    EncodeLabel, EncodeLabelSet, EncodeMetric, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::families::Family;
use super::labels::Labels;
use super::series::Series;

/// The series of a family.
#[derive(Debug)]
struct Registered {
    kind: MetricType,
    series: Arc<Vec<Series>>,
}

/// Registers a family under its name, with its help and its unit.
pub(super) fn register(registry: &mut Registry, family: &Family, series: &Arc<Vec<Series>>) {
    let metric = Registered { kind: family.kind, series: Arc::clone(series) };
    // The crate itself ends the name with the unit, and the help with a full stop.
    let help = family.help.trim_end_matches('.');
    match family.name.strip_suffix(family.unit).and_then(|name| name.strip_suffix('_')) {
        Some(name) => registry.register_with_unit(name, help, Unit::Other(family.unit.to_owned()), metric),
        None => registry.register(family.name, help, metric),
    }
}

impl EncodeMetric for Registered {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for Series { labels, value } in self.series.iter() {
            let mut encoder = encoder.encode_family(labels.as_ref())?;
            match (self.kind, value.number()) {
                (MetricType::Counter, Some(number)) => encoder.encode_counter::<NoLabelSet, _, f64>(&number, None)?,
                (MetricType::Gauge, Some(number)) => encoder.encode_gauge(&number)?,
                // Methods alone have others, and they are not registered.
                _ => return Err(fmt::Error),
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }

    fn is_empty(&self) -> bool {
        self.series.is_empty()
    }
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.pairs().try_for_each(|pair| pair.encode(encoder.encode_label()))
    }
}
