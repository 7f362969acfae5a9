//! The JSON of `tree`: a line for each invocation, the last for all of them ([`summary`]), and the plan ([`plan`]). Times are whole
//! nanoseconds; what is not known is `null`.

mod plan;
mod summary;

use std::io::{self, Write};

use nprof_common::Consumed;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

pub use self::plan::tree_plan_json;
pub(super) use self::summary::Summary;
pub use self::summary::tree_summary_json;
use super::handed::{Handed, HandedOver};
use super::{ShownInvocation, TreeContext, thread_label};
use crate::model::{Column, Invocation, JniStep, Missing, TreeKind, TreeThread};
use crate::render::collected::Collected;
use crate::render::json::{SCHEMA, line};

/// Writes one invocation as one line.
///
/// # Errors
/// What writing to `w` gives.
pub fn tree_json(context: &TreeContext, shown: ShownInvocation<'_>, w: &mut impl Write) -> io::Result<()> {
    line(&InvocationLine::of(context, shown), w)
}

#[derive(Serialize)]
pub(super) struct InvocationLine<'a> {
    schema: u32,
    number: u64,
    entry: String,
    thread: String,
    tid: Option<u32>,
    #[serde(rename = "virtual")]
    virtual_thread: Option<u64>,
    started: String,
    total_ns: Option<u64>,
    off_cpu_ns: Option<u64>,
    submitted_by: Option<SubmittedBy<'a>>,
    missing: MissingOf,
    root: Tree<'a>,
}

impl<'a> InvocationLine<'a> {
    pub(super) fn of(context: &'a TreeContext, shown: ShownInvocation<'a>) -> Self {
        let invocation = shown.invocation;
        let (tid, virtual_thread) = ids(invocation.thread);
        let off_ns = invocation.off_ns();
        Self {
            schema: SCHEMA,
            number: shown.number,
            entry: context.full(invocation.root().method),
            thread: shown.thread.map_or_else(|| thread_label(invocation.thread, None), str::to_owned),
            tid,
            virtual_thread,
            started: context.moment(invocation.started_ns).to_string(),
            total_ns: invocation.total_ns(),
            off_cpu_ns: invocation.total_ns().and(off_ns.as_deref()).and_then(|off_ns| off_ns.first().copied()),
            submitted_by: SubmittedBy::of(context, invocation),
            missing: invocation.missing.into(),
            root: Tree {
                context,
                invocation,
                off_ns,
                consumed: invocation.consumed(),
                handed: HandedOver::of(invocation),
            },
        }
    }
}

/// Who has made the task that an invocation is part of, or started its thread.
#[derive(Serialize)]
struct SubmittedBy<'a> {
    /// What it has come by.
    by: &'static str,
    invocation: u64,
    class: &'a str,
    method: &'a str,
    signature: &'a str,
    tid: Option<u32>,
    #[serde(rename = "virtual")]
    virtual_thread: Option<u64>,
    at: String,
    before_ns: u64,
}

impl<'a> SubmittedBy<'a> {
    fn of(context: &'a TreeContext, invocation: &Invocation) -> Option<Self> {
        let by = invocation.submitted_by?;
        let method = context.method(by.method);
        let (tid, virtual_thread) = ids(by.thread);
        Some(Self {
            by: if by.is_thread { "thread" } else { "task" },
            invocation: by.invocation,
            class: method.map_or("", |method| &method.class),
            method: method.map_or("", |method| &method.method),
            signature: method.map_or("", |method| &method.signature),
            tid,
            virtual_thread,
            at: context.moment(by.at_ns).to_string(),
            before_ns: invocation.started_ns.saturating_sub(by.at_ns),
        })
    }
}

/// The numbers of a thread: of a platform thread in the kernel, if it is known on the host, of a virtual one in Java.
fn ids(thread: TreeThread) -> (Option<u32>, Option<u64>) {
    match thread {
        TreeThread::Platform(tid) => (Some(tid), None),
        TreeThread::Contained(_) => (None, None),
        TreeThread::Virtual(id) => (None, Some(id)),
    }
}

#[derive(Serialize)]
struct MissingOf {
    lost_events: u64,
    /// Only where calls are told as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_calls: Option<u64>,
    ends: u64,
    beginnings: u64,
    cut: u64,
    after_loss: bool,
}

impl From<Missing> for MissingOf {
    fn from(of: Missing) -> Self {
        let lost_calls = Some(of.lost_calls).filter(|lost| *lost > 0);
        let Missing { lost, unbegun, unended, cut, is_after_loss, .. } = of;
        Self { lost_events: lost, lost_calls, ends: unended, beginnings: unbegun, cut, after_loss: is_after_loss }
    }
}

/// All nodes of an invocation.
struct Tree<'a> {
    context: &'a TreeContext,
    invocation: &'a Invocation,
    /// Of each node how long the thread did not run.
    off_ns: Option<Vec<u64>>,
    /// What each consumed.
    consumed: Option<Vec<Consumed>>,
    handed: HandedOver,
}

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Node { tree: self, place: 0, caller: None }.serialize(serializer)
    }
}

/// A node with all below it.
struct Node<'a> {
    tree: &'a Tree<'a>,
    place: u32,
    caller: Option<u32>,
}

#[derive(Serialize)]
struct NodeOf<'a> {
    class: &'a str,
    method: &'a str,
    signature: &'a str,
    kind: &'static str,
    /// Only of JNI functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'static str>,
    /// Only of those that call Java.
    #[serde(skip_serializing_if = "Option::is_none")]
    callee: Option<&'a str>,
    lines: &'a [u16],
    calls: u64,
    without_end: u64,
    total_ns: u64,
    self_ns: u64,
    off_cpu_ns: Option<u64>,
    self_off_cpu_ns: Option<u64>,
    min_ns: u64,
    max_ns: u64,
    /// Only where something is collected: without nested calls, and with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    collected: Option<Option<Collected>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collected_total: Option<Option<Collected>>,
    exception: Option<&'a str>,
    exceptions: Vec<ExceptionOf<'a>>,
    /// Only where it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    handed_over: Option<&'a Handed>,
    children: Children<'a>,
}

#[derive(Serialize)]
struct ExceptionOf<'a> {
    class: &'a str,
    left: u64,
    threw: u64,
    caught: u64,
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { tree, place, caller } = *self;
        let (context, off_ns) = (tree.context, tree.off_ns.as_deref());
        let node = &tree.invocation.nodes[place as usize];
        let method = context.method(node.method);
        let class = |number| context.exception(number);
        let exceptions = node.exceptions.iter().map(|sum| ExceptionOf {
            class: class(sum.exception),
            left: sum.left,
            threw: sum.threw,
            caught: sum.caught,
        });
        let consumed = tree.consumed.as_ref().and_then(|consumed| consumed.get(place as usize));
        let collected = |number| Collected::of(tree.invocation.collectors, consumed, number);
        let children = Children { tree, of: node.method, places: &node.children };
        let of = NodeOf {
            class: method.map_or("", |method| &method.class),
            method: method.map_or("", |method| &method.method),
            signature: method.map_or("", |method| &method.signature),
            kind: method.map_or("java", |method| kind(method.kind)),
            step: method.and_then(|method| step(method.kind)),
            callee: method.and_then(|method| method.callee.as_deref()),
            lines: caller.map_or(&[], |caller| context.lines(node.method, caller)),
            calls: node.calls,
            without_end: node.unended,
            total_ns: node.total_ns,
            self_ns: node.self_ns(),
            off_cpu_ns: off_ns.and_then(|off_ns| off_ns.get(place as usize).copied()),
            self_off_cpu_ns: off_ns.map(|_| node.self_off_ns()),
            min_ns: node.min_ns,
            max_ns: node.max_ns,
            collected: collected(Column::own),
            collected_total: collected(Column::total),
            exception: node.exceptions.iter().find(|sum| sum.left > 0).map(|sum| class(sum.exception)),
            exceptions: exceptions.collect(),
            handed_over: tree.handed.at(place),
            children,
        };
        of.serialize(serializer)
    }
}

/// What a node is.
pub(super) fn kind(kind: TreeKind) -> &'static str {
    match kind {
        TreeKind::Java => "java",
        TreeKind::Native => "native",
        TreeKind::Intrinsic => "intrinsic",
        TreeKind::Jni(_) => "jni",
    }
}

/// What a JNI function is for, in one word.
#[must_use]
pub fn step(kind: TreeKind) -> Option<&'static str> {
    match kind {
        TreeKind::Java | TreeKind::Native | TreeKind::Intrinsic => None,
        TreeKind::Jni(JniStep::Creation) => Some("creation"),
        TreeKind::Jni(JniStep::Release) => Some("release"),
        TreeKind::Jni(JniStep::Call) => Some("call"),
    }
}

/// The nodes below one.
struct Children<'a> {
    tree: &'a Tree<'a>,
    of: u32,
    places: &'a [u32],
}

impl Serialize for Children<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { tree, of, places } = *self;
        let mut list = serializer.serialize_seq(Some(places.len()))?;
        for &place in places {
            list.serialize_element(&Node { tree, place, caller: Some(of) })?;
        }
        list.end()
    }
}
