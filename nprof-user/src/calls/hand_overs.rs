//! Where methods hand tasks to other threads, and the methods of the JDK that have to tell of it so that a task is known again where it is run.
//!
//! Those that are changed make an object for each task and run that, so that there is no doubt which one it is: a `FutureTask` of an
//! `ExecutorService`, what `CompletableFuture` makes of a function, tasks of a `ForkJoinPool`, threads. What is given to
//! `Executor::execute` as it is may be the same object each time: of that something is told only where a method makes a new one for it.

use nprof_common::tree::TaskKind;

use super::hierarchy::Hierarchy;
use super::references::Reference;
use super::{Classes, DeclaredMethod, LoadedClass, PlannedClass};
use crate::classfile::flag;
use crate::enhance::{TaskPart, Wanted};

/// By what tasks are handed over: methods of classes that are one of these, by the beginning and the end of their names.
const DOORS: [(&str, &[(&str, &str)]); 6] = [
    ("java.util.concurrent.Executor", &[("execute", ""), ("submit", ""), ("invoke", ""), ("schedule", "")]),
    ("java.util.concurrent.CompletionService", &[("submit", "")]),
    ("java.util.concurrent.CompletionStage", &[("", "Async")]),
    ("java.util.concurrent.ForkJoinTask", &[("fork", ""), ("invokeAll", "")]),
    ("java.util.concurrent.FutureTask", &[("<init>", "")]),
    ("java.lang.Thread", &[("start", "")]),
];
/// What is none of these, but made to start threads.
const BUILDER: &str = "java.lang.Thread$Builder";

/// The methods that are changed: class, method, what it has to do with tasks. Some versions of the JDK do not have all.
const CHANGED: [(&str, &str, TaskPart); 16] = [
    ("java.util.concurrent.FutureTask", "<init>", hands(TaskKind::Task)),
    ("java.util.concurrent.FutureTask", "run", TaskPart::Runs),
    ("java.util.concurrent.FutureTask", "runAndReset", TaskPart::Runs),
    ("java.util.concurrent.CompletableFuture$AsyncSupply", "<init>", hands(TaskKind::Task)),
    ("java.util.concurrent.CompletableFuture$AsyncSupply", "run", TaskPart::Runs),
    ("java.util.concurrent.CompletableFuture$AsyncRun", "<init>", hands(TaskKind::Task)),
    ("java.util.concurrent.CompletableFuture$AsyncRun", "run", TaskPart::Runs),
    ("java.util.concurrent.CompletableFuture$UniCompletion", "<init>", hands(TaskKind::Stage)),
    ("java.util.concurrent.CompletableFuture$Completion", "run", TaskPart::Runs),
    ("java.util.concurrent.ForkJoinTask", "fork", hands(TaskKind::Again)),
    ("java.util.concurrent.ForkJoinTask", "doExec", TaskPart::Runs),
    ("java.util.concurrent.ThreadPoolExecutor", "runWorker", TaskPart::RunsMany),
    ("java.util.concurrent.ThreadPoolExecutor", "beforeExecute", TaskPart::Next(Some(2))),
    ("java.util.concurrent.ThreadPoolExecutor", "afterExecute", TaskPart::Next(None)),
    ("java.lang.Thread", "start", hands(TaskKind::Thread)),
    ("java.lang.VirtualThread", "start", hands(TaskKind::Thread)),
];
/// What a `ForkJoinPool` makes of other tasks: all constructors of classes that begin so and are tasks.
const WRAPPERS: &str = "java.util.concurrent.ForkJoinTask$";
const FORK_JOIN_TASK: &str = "java.util.concurrent.ForkJoinTask";

const fn hands(kind: TaskKind) -> TaskPart {
    TaskPart::Hands(kind as u8)
}

/// Whether a call may hand a task to another thread.
pub(super) fn is_hand_over(hierarchy: &Hierarchy, from: u32, call: &Reference) -> bool {
    let is_named = |(start, end): &(&str, &str)| call.name.starts_with(start) && call.name.ends_with(end);
    if call.class == BUILDER {
        return call.name == "start";
    }
    let mut doors = DOORS.iter().filter(|(_, names)| names.iter().any(is_named)).peekable();
    if doors.peek().is_none() {
        return false;
    }
    let above = hierarchy.find(&call.class, from).map(|class| hierarchy.names_above(class)).unwrap_or_default();
    doors.any(|(door, _)| call.class == *door || above.contains(door))
}

/// What is changed so that tasks are known again, in the classes that are loaded.
///
/// # Errors
/// When the VM cannot be asked any more.
pub fn changed_for_tasks<C: Classes>(classes: &mut C, loaded: &[LoadedClass]) -> Result<Vec<PlannedClass>, C::Error> {
    let is_concerned = |class: &LoadedClass| {
        let is_listed = || CHANGED.iter().any(|(of, ..)| *class.name == **of);
        class.is_modifiable && class.loader == 0 && (is_wrapper(loaded, class) || is_listed())
    };
    let concerned = (0..).zip(loaded).filter(|(_, class)| is_concerned(class));
    let concerned: Vec<(u32, &LoadedClass)> = concerned.collect();
    let numbers: Vec<u32> = concerned.iter().map(|(number, _)| *number).collect();
    let planned = concerned.into_iter().zip(classes.methods(&numbers)?).filter_map(|((number, class), methods)| {
        let part = |method: &str| match is_wrapper(loaded, class) {
            true => (method == "<init>").then_some(hands(TaskKind::Task)),
            false => CHANGED.iter().find(|(of, name, _)| *class.name == **of && *name == method).map(|row| row.2),
        };
        let has_code = |method: &&DeclaredMethod| method.flags & (flag::ABSTRACT | flag::NATIVE | flag::STATIC) == 0;
        let wanted = methods.iter().filter(has_code).filter_map(|method| {
            Some(Wanted {
                name: method.name.to_string(),
                signature: method.signature.to_string(),
                number: None,
                native_calls: Vec::new(),
                task: Some(part(&method.name)?),
            })
        });
        let wanted: Vec<Wanted> = wanted.collect();
        (!wanted.is_empty()).then_some(PlannedClass { class: number, wanted })
    });
    Ok(planned.collect())
}

fn is_wrapper(loaded: &[LoadedClass], class: &LoadedClass) -> bool {
    class.name.starts_with(WRAPPERS) && is_fork_join_task(loaded, class)
}

fn is_fork_join_task(loaded: &[LoadedClass], class: &LoadedClass) -> bool {
    let above = |class: &&LoadedClass| class.superclass.and_then(|above| loaded.get(above as usize));
    // What is longer is a circle.
    std::iter::successors(Some(class), above).take(10).any(|class| *class.name == *FORK_JOIN_TASK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{Bytecode, Constants};

    /// The methods of the classes below.
    const METHODS: [&[&str]; 9] = [
        &["<init>"],
        &[],
        &["submitAll"],
        &["<init>", "start", "run"],
        &["run", "start"],
        &["fork", "doExec", "join"],
        &["<init>", "exec"],
        &["<init>"],
        &["run"],
    ];

    fn class(name: &str, superclass: Option<u32>, interfaces: &[u32]) -> LoadedClass {
        let (name, interfaces) = (name.into(), interfaces.to_vec());
        LoadedClass { name, loader: 0, superclass, interfaces, flags: 0, is_modifiable: true }
    }

    fn classes() -> Vec<LoadedClass> {
        vec![
            class("java.lang.Object", None, &[]),
            class("java.util.concurrent.Executor", Some(0), &[]),
            class("com.acme.Pool", Some(0), &[1]),
            class("java.lang.Thread", Some(0), &[]),
            class("com.acme.Own", Some(3), &[]),
            class(FORK_JOIN_TASK, Some(0), &[]),
            class("java.util.concurrent.ForkJoinTask$Adapted", Some(5), &[]),
            class("java.util.concurrent.ForkJoinTask$Aux", Some(0), &[]),
            LoadedClass { loader: 1, ..class("java.util.concurrent.FutureTask", Some(0), &[]) },
        ]
    }

    /// A VM that has them, and notes of which it was asked.
    #[derive(Default)]
    struct Vm(Vec<u32>);

    impl Classes for Vm {
        type Error = std::convert::Infallible;

        fn loaded(&mut self) -> Result<Vec<LoadedClass>, Self::Error> {
            Ok(classes())
        }

        fn methods(&mut self, classes: &[u32]) -> Result<Vec<Vec<DeclaredMethod>>, Self::Error> {
            self.0.extend(classes);
            let method = |name: &&str| DeclaredMethod { name: (*name).into(), signature: "()V".into(), flags: 0 };
            Ok(classes.iter().map(|class| METHODS[*class as usize].iter().map(method).collect()).collect())
        }

        fn constants(&mut self, _: u32) -> Result<Option<Constants>, Self::Error> {
            Ok(None)
        }

        fn bytecode(&mut self, _: u32, _: u32) -> Result<Option<Bytecode>, Self::Error> {
            Ok(None)
        }

        fn intrinsics(&mut self, _: u32) -> Result<Vec<u32>, Self::Error> {
            Ok(Vec::new())
        }
    }

    /// Check that a call is known by what its class is, and that others of such names, or in such classes, are not.
    #[test]
    fn calls_that_hand_over() {
        let hierarchy = Hierarchy::new(classes());
        let is_one = |class: &str, name: &str| {
            let (class, name, signature) = (class.to_owned(), name.to_owned(), "()V".to_owned());
            is_hand_over(&hierarchy, 0, &Reference { class, name, signature, is_virtual: true, is_direct: true, at: 0 })
        };
        assert!(is_one("com.acme.Pool", "submitAll") && is_one("com.acme.Own", "start"));
        assert!(is_one("java.lang.Thread", "startVirtualThread") && is_one("java.lang.Thread$Builder", "start"));
        assert!(is_one("java.util.concurrent.CompletionStage", "thenApplyAsync"));
        assert!(!is_one("java.lang.Thread", "sleep") && !is_one("com.acme.Pool", "start"));
        assert!(!is_one("java.lang.Object", "submit") && !is_one("com.acme.Unknown", "execute"));
    }

    /// Check that what is changed is what the JDK itself has, and that of wrappers only constructors are, and only of those that are tasks.
    #[test]
    fn what_is_changed() {
        let mut vm = Vm::default();
        let Ok(changed) = changed_for_tasks(&mut vm, &classes());
        assert_eq!(vm.0, [3, 5, 6]);
        let rows: Vec<_> = changed
            .iter()
            .flat_map(|class| class.wanted.iter().map(|wanted| (class.class, &wanted.name[..], wanted.task)))
            .collect();
        let expected = [
            (3, "start", Some(TaskPart::Hands(2))),
            (5, "fork", Some(TaskPart::Hands(1))),
            (5, "doExec", Some(TaskPart::Runs)),
            (6, "<init>", Some(TaskPart::Hands(0))),
        ];
        assert_eq!(rows, expected);
    }
}
