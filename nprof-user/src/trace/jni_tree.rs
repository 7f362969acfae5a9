//! Single calls of native methods and of JNI functions, as they are told one by one: whose they are, and of which class the exception
//! is that is pending at their end.

use std::collections::HashMap;

use nprof_common::{JniEvent, JniThrown};

use super::TracedJvm;
use super::classes::Classes;
use crate::attach::Feeds;
use crate::model::{EndedCall, JniResource, JniStep, Method, SharedStr, TreeKind, TreeMethod, TreeThread, jni};

/// How many classes of exceptions are told apart; others have no name.
const MAX_EXCEPTIONS: usize = 4_096;
/// The same of Java methods that functions call.
const MAX_CALLEES: usize = 4_096;

/// The calls of one JVM.
#[derive(Debug)]
pub(super) struct JniTree {
    feeds: Feeds,
    /// The functions by their numbers; they are only ever more.
    methods: Vec<TreeMethod>,
    /// The numbers of functions by index.
    numbers: HashMap<u32, u32>,
    /// The numbers by record, as it is now or was last.
    records: HashMap<u32, u32>,
    /// The numbers of functions that call a Java method, by the function's and the method's name.
    callees: HashMap<(u32, SharedStr), u32>,
    /// What is known of classes of exceptions, by number, and the numbers.
    classes: Vec<u64>,
    exceptions: HashMap<u64, u32>,
    /// Calls of records that no function has.
    unknown: u64,
    lost_before: u64,
}

impl JniTree {
    /// Before anything is attached: what there is in the ring is of the calibration, and no call of the JVM's.
    pub(super) fn new(mut feeds: Feeds) -> Self {
        feeds.read_nested_calls(|_| {});
        let lost_before = feeds.taken().calls_lost;
        let (methods, numbers, records) = (Vec::new(), HashMap::new(), HashMap::new());
        let (callees, classes, exceptions) = (HashMap::new(), Vec::new(), HashMap::new());
        Self { feeds, methods, numbers, records, callees, classes, exceptions, unknown: 0, lost_before }
    }

    /// The functions by their numbers.
    pub(super) fn methods(&self) -> &[TreeMethod] {
        &self.methods
    }

    /// What the class of exceptions with a number is known by.
    pub(super) fn class(&self, exception: u32) -> Option<u64> {
        self.classes.get(usize::try_from(exception).ok()?).copied()
    }

    /// Calls that could not be told, or are of nobody.
    pub(super) fn lost(&self) -> u64 {
        self.feeds.taken().calls_lost - self.lost_before + self.unknown
    }

    /// Looks which function has which record.
    pub(super) fn refresh(&mut self, jvm: &TracedJvm) {
        let records = jvm.functions_by_record();
        for (_, index, known) in &records {
            let number = u32::try_from(self.methods.len()).unwrap_or(u32::MAX);
            if !self.numbers.contains_key(index) {
                self.numbers.insert(*index, number);
                self.methods.push(method(known));
            }
        }
        // What a function has told that has no record any more may not have been read.
        self.records.extend(records.iter().map(|(record, index, _)| (*record, self.numbers[index])));
    }

    /// Passes on the calls that have ended since the last time.
    pub(super) fn read(&mut self, jvm: &TracedJvm, names: &mut Classes, mut pass: impl FnMut(EndedCall)) {
        let mut events = Vec::new();
        self.feeds.read_nested_calls(|event| events.push(event));
        if events.iter().any(|event| !self.records.contains_key(&event.call.index)) {
            self.refresh(jvm);
        }
        for JniEvent { call, depth, lost, exception, callee } in events {
            let Some(&function) = self.records.get(&call.index) else {
                self.unknown += 1;
                continue;
            };
            let method = if callee == 0 { function } else { self.calling(function, callee, names) };
            pass(EndedCall {
                thread: TreeThread::Platform(call.tid),
                start_ns: call.start_ns,
                time_ns: call.time_ns,
                method,
                depth,
                lost: lost.into(),
                exception: (exception != 0).then(|| self.exception(exception)),
            });
        }
    }

    /// The number of a function that calls the Java method with this id. Methods whose names are not known, or that are too many, are not
    /// told apart.
    fn calling(&mut self, function: u32, callee: u64, names: &mut Classes) -> u32 {
        names.learn_method(callee);
        let known = self.methods.get(function as usize).zip(names.learnt_method(callee));
        let Some((of, java)) = known else { return function };
        let name = SharedStr::from(format!("{}::{}{}", java.class, java.name, java.signature));
        let next = u32::try_from(self.methods.len()).unwrap_or(u32::MAX);
        match self.callees.get(&(function, name.clone())) {
            Some(known) => *known,
            None if self.callees.len() >= MAX_CALLEES => function,
            None => {
                self.methods.push(TreeMethod { callee: Some(name.clone()), ..of.clone() });
                self.callees.insert((function, name), next);
                next
            }
        }
    }

    /// The number of a class of exceptions. Those that are not known, or are too many, have one together.
    fn exception(&mut self, class: u64) -> u32 {
        let class = if self.classes.len() < MAX_EXCEPTIONS { class } else { JniThrown::UNKNOWN };
        let next = u32::try_from(self.classes.len()).unwrap_or(u32::MAX);
        *self.exceptions.entry(class).or_insert_with(|| {
            self.classes.push(class);
            next
        })
    }
}

/// A function as a method of trees.
fn method(known: &Method) -> TreeMethod {
    let is_function = &*known.class == jni::CLASS;
    let step = match (JniResource::made_by(&known.name), JniResource::let_go_by(&known.name)) {
        (Some(_), _) => JniStep::Creation,
        (_, Some(_)) => JniStep::Release,
        _ => JniStep::Call,
    };
    TreeMethod {
        class: known.class.clone(),
        method: known.name.clone(),
        signature: known.signature.clone(),
        kind: if is_function { TreeKind::Jni(step) } else { TreeKind::Native },
        is_entry: !is_function,
        depth: 0,
        callers: Vec::new(),
        callee: None,
    }
}
