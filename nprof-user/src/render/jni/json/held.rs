//! What native code has made and let go, and what it still holds.

use serde::Serialize;

use crate::model::{self, JniHeldGroup, JniLocalsSnapshot, JniResource, JniSnapshot, LocalsKnown, Resources};
use crate::render::document::Names;
use crate::render::jni::held;
use crate::render::json::nanoseconds;
use crate::render::names;

#[derive(Serialize)]
pub(super) struct References {
    made: u64,
    released: u64,
    /// The rest only where it is followed what is held.
    #[serde(flatten)]
    held: Option<Held>,
}

#[derive(Serialize)]
struct Held {
    /// Of those released.
    made_before: u64,
    live: u64,
    exact: bool,
}

/// Things of one kind that were made and not let go.
#[derive(Serialize)]
pub(super) struct Leak<'a> {
    kind: &'static str,
    class: Option<&'a str>,
    /// `class::method` of the native method; `null` for what no traced one has made.
    method: Option<String>,
    signature: Option<&'a str>,
    function: Option<&'a str>,
    count: u64,
    elements: u64,
    oldest_ns: u64,
    youngest_ns: u64,
    /// The stack that most of those have whose stack was taken; empty if there is none.
    stack: &'a [String],
    /// Of how many of them that was.
    stacks_taken: u64,
    /// All different ones, the most frequent first.
    stacks: Vec<Stack<'a>>,
}

/// From where in Java things were made.
#[derive(Serialize)]
struct Stack<'a> {
    /// Of how many things it is the stack, of `stacks_taken`.
    seen: u64,
    /// The innermost first.
    frames: &'a [String],
}

/// Calls that held more local references than there was room for.
#[derive(Serialize)]
pub(super) struct LocalsBeyond<'a> {
    calls: u64,
    most: u64,
    exact: bool,
    /// The most first.
    methods: Vec<LocalsOf<'a>>,
}

/// Those of one native method.
#[derive(Serialize)]
struct LocalsOf<'a> {
    #[serde(flatten)]
    names: Names<'a>,
    calls: u64,
    most: u64,
}

impl References {
    pub(super) fn of(jni: &JniSnapshot, resource: JniResource, sums: Resources) -> Self {
        let held = jni.held.as_ref().filter(|_| JniResource::FOLLOWED.contains(&resource)).map(|held| Held {
            made_before: sums.made_before,
            live: held.live(resource),
            exact: held::is_exact(jni, resource),
        });
        Self { made: sums.made, released: sums.let_go, held }
    }
}

impl<'a> Leak<'a> {
    pub(super) fn of(jni: &'a JniSnapshot, group: &'a JniHeldGroup) -> Self {
        let method = native(jni, group.method);
        Self {
            kind: group.resource.as_str(),
            class: group.class.as_deref(),
            method: method.map(names::qualified),
            signature: method.map(|method| &*method.signature),
            function: group.function.map(|function| jni.function(function)),
            count: group.count,
            elements: group.elements,
            oldest_ns: nanoseconds(group.oldest),
            youngest_ns: nanoseconds(group.youngest),
            stack: group.paths.first().map_or(&[], |path| &path.frames),
            stacks_taken: group.stacks(),
            stacks: group.paths.iter().map(|path| Stack { seen: path.seen, frames: &path.frames }).collect(),
        }
    }
}

impl<'a> LocalsBeyond<'a> {
    pub(super) fn of(jni: &'a JniSnapshot, locals: &JniLocalsSnapshot) -> Option<Self> {
        let of = |of: &model::LocalsBeyond| LocalsOf {
            names: native(jni, of.method).into(),
            calls: of.calls,
            most: of.most,
        };
        (locals.known != LocalsKnown::Not).then(|| Self {
            calls: locals.beyond.iter().map(|of| of.calls).sum(),
            most: locals.beyond.iter().map(|of| of.most).max().unwrap_or(0),
            exact: locals.known == LocalsKnown::Exactly,
            methods: locals.beyond.iter().map(of).collect(),
        })
    }
}

/// The native method in a place; `None` for what no traced one has done.
fn native(jni: &JniSnapshot, place: Option<usize>) -> Option<&model::Method> {
    place.and_then(|place| Some(&jni.snapshot.methods.get(place)?.methods.first()?.method))
}
