//! Has the methods of a plan enhanced, class by class, and notes what cannot be.

use std::collections::{BTreeMap, BTreeSet};

use nprof_common::tree::{ENTER, HANDS, HOOK_CLASS, LEAVE, RAN, RUNS, TASKS, THREW};

use super::classes::ClassList;
use super::reading::LoadedClasses;
use super::session::Session;
use crate::calls::{Planned, PlannedClass, changed_for_tasks};
use crate::enhance::{Enhanced, Hooks, NativeCall, TaskPart, Wanted, enhance};
use crate::model::{LeftOut, LeftOutReason, TreeKind, TreeMethod, TreePlan};
use crate::shim;

const HOOKS: Hooks<'_> = Hooks {
    class: HOOK_CLASS,
    enter: ENTER.0,
    leave: LEAVE.0,
    threw: THREW.0,
    hands: HANDS.0,
    runs: RUNS.0,
    ran: RAN.0,
};
/// Why calls of native methods are not told of.
const UNTOLD: &str = "what the locals hold at a call that may be caught is not known";
/// So many classes are enhanced at a time: for each time all threads stop for a moment.
const AT_A_TIME: usize = 64;

/// Has all of them enhanced. What could not be is added to what the plan leaves out. Returns how many classes are enhanced.
pub(super) fn enhance_all(
    session: &mut Session,
    list: &ClassList,
    planned: &mut Planned,
) -> Result<usize, shim::Error> {
    let numbers: Vec<u32> = planned.classes.iter().map(|class| class.class).collect();
    enhance_some(session, list, planned, &numbers)
}

/// Has methods tell no more, or those that tell of [`TASKS`]: their classes are enhanced anew without that, and those of which nothing is left to tell are as they were.
pub(super) fn silence(
    session: &mut Session,
    list: &ClassList,
    planned: &mut Planned,
    methods: &[u32],
) -> Result<(), shim::Error> {
    let mut changed = Vec::new();
    for class in &mut planned.classes {
        if silence_in(&mut class.wanted, methods) {
            changed.push(class.class);
        }
    }
    enhance_some(session, list, planned, &changed).map(drop)
}

/// Takes methods out of what is wanted of a class. Returns whether there were any.
fn silence_in(wanted: &mut Vec<Wanted>, methods: &[u32]) -> bool {
    let mut is_changed = false;
    for wanted in &mut *wanted {
        is_changed |= wanted.number.take_if(|number| methods.contains(number)).is_some();
        let calls = wanted.native_calls.len();
        wanted.native_calls.retain(|call| !methods.contains(&call.number));
        is_changed |= wanted.native_calls.len() < calls;
        is_changed |= methods.contains(&TASKS) && wanted.task.take().is_some();
    }
    wanted.retain(|wanted| wanted.number.is_some() || !wanted.native_calls.is_empty() || wanted.task.is_some());
    is_changed
}

fn enhance_some(
    session: &mut Session,
    list: &ClassList,
    planned: &mut Planned,
    numbers: &[u32],
) -> Result<usize, shim::Error> {
    let wanted: BTreeMap<u32, &[Wanted]> =
        planned.classes.iter().map(|class| (class.class, &class.wanted[..])).collect();
    let mut enhancing = Enhancing { session, wanted: &wanted, list, left_out: BTreeSet::new(), classes: 0 };
    for group in numbers.chunks(AT_A_TIME) {
        enhancing.group(group)?;
    }
    let Enhancing { left_out, classes, .. } = enhancing;
    let known = |left_out: &LeftOut| planned.plan.left_out.contains(left_out);
    let new: Vec<LeftOut> = left_out.into_iter().filter(|left_out| !known(left_out)).collect();
    planned.plan.left_out.extend(new);
    Ok(classes)
}

struct Enhancing<'a> {
    session: &'a mut Session,
    wanted: &'a BTreeMap<u32, &'a [Wanted]>,
    list: &'a ClassList,
    left_out: BTreeSet<LeftOut>,
    classes: usize,
}

impl Enhancing<'_> {
    /// Enhances several classes at once or, if the VM refuses one of them, one after another.
    fn group(&mut self, group: &[u32]) -> Result<(), shim::Error> {
        let error = self.at_once(group)?;
        match (error, group) {
            (0, _) => {}
            (error, &[class]) => self.refused(class, error),
            _ => {
                for &class in group {
                    let error = self.at_once(&[class])?;
                    if error != 0 {
                        self.refused(class, error);
                    }
                }
            }
        }
        Ok(())
    }

    fn at_once(&mut self, group: &[u32]) -> Result<u32, shim::Error> {
        let Self { session, wanted, list, left_out, .. } = self;
        let mut change = |class: u32, file: &[u8]| {
            let name = &list.classes.get(class as usize)?.name;
            // Of which nothing is wanted any more stays as the VM shows it.
            let wanted = wanted.get(&class).copied().filter(|wanted| !wanted.is_empty())?;
            match enhance(file, wanted, &HOOKS) {
                Ok(done) => {
                    left_out.extend(of_methods(name, wanted, &done));
                    (done.changed > 0).then_some(done.class_file)
                }
                Err(why) => {
                    let why = LeftOutReason::ClassFile(why.to_string());
                    left_out.insert(LeftOut { what: name.to_string(), why });
                    None
                }
            }
        };
        let done = session.enhance(group, &mut change)?;
        self.classes += done.classes as usize;
        Ok(done.error)
    }

    fn refused(&mut self, class: u32, error: u32) {
        const UNMODIFIABLE: u32 = 79;
        let what = self.list.classes.get(class as usize).map(|class| class.name.to_string()).unwrap_or_default();
        let why = match error {
            UNMODIFIABLE => LeftOutReason::Unmodifiable,
            error => LeftOutReason::ClassFile(format!("the VM refuses it, {}", meaning(error))),
        };
        self.left_out.insert(LeftOut { what, why });
    }
}

/// What of a class's methods could not be done.
fn of_methods(class: &str, wanted: &[Wanted], done: &Enhanced) -> Vec<LeftOut> {
    let name = |place: usize| wanted.get(place).map(|method| format!("{class}::{}{}", method.name, method.signature));
    let refused = done.refused.iter().filter_map(|(place, why)| {
        Some(LeftOut { what: name(*place)?, why: LeftOutReason::ClassFile(why.to_string()) })
    });
    let untold = done.untold.iter().filter_map(|(place, calls)| {
        let why = LeftOutReason::ClassFile(UNTOLD.to_owned());
        Some(LeftOut { what: format!("{calls} calls of native methods in {}", name(*place)?), why })
    });
    refused.chain(untold).collect()
}

/// What the VM means by an error.
fn meaning(error: u32) -> String {
    let known = match error {
        60 => "as no class file",
        61 => "as its own superclass",
        62 => "as it fails verification",
        63 | 64 | 66 | 67 | 70 | 71 | 72 => "as it would have other members",
        68 => "as it has an unknown version",
        110 => "for want of memory",
        _ => return format!("with error {error}"),
    };
    known.to_owned()
}

/// What is wanted of the classes of a plan: methods that tell of themselves, and natives and intrinsics of which their callers tell. Of classes of the same
/// name, all are wanted.
pub(super) fn planned(plan: TreePlan, list: &ClassList) -> Planned {
    let mut by_class: BTreeMap<String, Vec<Wanted>> = BTreeMap::new();
    for (number, method) in (0..).zip(&plan.methods).filter(|(_, method)| method.kind == TreeKind::Java) {
        of_method(&mut by_class, method).number = Some(number);
    }
    for (number, native) in (0..).zip(&plan.methods).filter(|(_, method)| method.kind != TreeKind::Java) {
        let callers = native.callers.iter().filter_map(|caller| plan.methods.get(caller.method as usize));
        for caller in callers.filter(|caller| caller.kind == TreeKind::Java) {
            of_method(&mut by_class, caller).native_calls.push(NativeCall {
                class: native.class.replace('.', "/"),
                name: native.method.to_string(),
                signature: native.signature.to_string(),
                number,
            });
        }
    }
    let of_name = |(name, wanted): (String, Vec<Wanted>)| {
        let classes = list.named(&name).iter();
        classes.map(|&class| PlannedClass { class, wanted: wanted.clone() }).collect::<Vec<_>>()
    };
    Planned { plan, hands_over: false, classes: by_class.into_iter().flat_map(of_name).collect() }
}

/// Adds what has to be changed so that tasks are known again where they are run. Some of it may be followed anyway.
///
/// # Errors
/// If the shim is gone.
pub(super) fn add_tasks(planned: &mut Planned, classes: &mut LoadedClasses<'_>) -> Result<(), shim::Error> {
    let followed = planned.classes.iter_mut().flat_map(|class| &mut class.wanted);
    followed.filter(|wanted| wanted.number.is_some()).for_each(|wanted| wanted.task = Some(TaskPart::Gives));
    let list = classes.list;
    for class in changed_for_tasks(classes, &list.classes)? {
        let name = list.classes.get(class.class as usize).map(|class| class.name.to_string()).unwrap_or_default();
        let names = class.wanted.iter().map(|wanted| format!("{name}::{}{}", wanted.name, wanted.signature));
        planned.plan.for_tasks.extend(names);
        match planned.classes.iter_mut().find(|known| known.class == class.class) {
            Some(known) => class.wanted.into_iter().for_each(|wanted| merge(&mut known.wanted, wanted)),
            None => planned.classes.push(class),
        }
    }
    Ok(())
}

fn merge(all: &mut Vec<Wanted>, more: Wanted) {
    match all.iter_mut().find(|known| known.name == more.name && known.signature == more.signature) {
        Some(known) => known.task = more.task,
        None => all.push(more),
    }
}

fn of_method<'a>(by_class: &'a mut BTreeMap<String, Vec<Wanted>>, method: &TreeMethod) -> &'a mut Wanted {
    let of_class = by_class.entry(method.class.to_string()).or_default();
    let is_it = |known: &Wanted| known.name == *method.method && known.signature == *method.signature;
    let place = of_class.iter().position(is_it).unwrap_or_else(|| {
        let (name, signature) = (method.method.to_string(), method.signature.to_string());
        of_class.push(Wanted { name, signature, number: None, native_calls: Vec::new(), task: None });
        of_class.len() - 1
    });
    &mut of_class[place]
}
