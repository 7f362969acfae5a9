//! Hands each window of each JVM that is over to those that push it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::ProfileSink;
use crate::model::{JvmLabels, Profile};

/// How often it is asked which windows are over: they wait no longer than a fraction of their own length.
const EVERY: Duration = Duration::from_secs(1);

/// The windows that are over by now, each once, with the labels of their JVM. Called on threads that may block.
pub type NewWindows = Box<dyn FnMut() -> Vec<(Arc<JvmLabels>, Profile)> + Send>;

/// Hands over windows until `stop` ends. What is not over by then is not pushed.
pub async fn hand_over(mut new: NewWindows, sinks: Vec<ProfileSink>, stop: impl Future<Output = ()>) {
    let handing_over = async {
        loop {
            sleep(EVERY).await;
            let of_all = sinks.clone();
            let handed_over = spawn_blocking(move || {
                for (labels, window) in new() {
                    of_all.iter().for_each(|sink| sink.push(&window, &labels));
                }
                new
            });
            match handed_over.await {
                Ok(again) => new = again,
                Err(panic) => {
                    return tracing::error!("no more profiles are pushed, because of a defect of nprof: {panic}");
                }
            }
        }
    };
    tokio::select! {
        () = handing_over => {}
        () = stop => {}
    }
}
