//! Has the methods of a plan enhanced, class by class, and notes what cannot be.

use std::collections::{BTreeMap, BTreeSet};

use nprof_common::tree::{ENTER, HOOK_CLASS, LEAVE, THREW};

use super::classes::ClassList;
use super::session::Session;
use crate::enhance::{Hooks, NativeCall, Wanted, enhance};
use crate::model::{LeftOut, LeftOutReason, TreeKind, TreeMethod, TreePlan};
use crate::shim;

const HOOKS: Hooks<'_> = Hooks { class: HOOK_CLASS, enter: ENTER.0, leave: LEAVE.0, threw: THREW.0 };
/// So many classes are enhanced at a time: for each time all threads stop for a moment.
const AT_A_TIME: usize = 64;

/// What is wanted of each class, by its name.
type ByClass = BTreeMap<String, Vec<Wanted>>;

/// Has all of them enhanced. What could not be is added to what the plan leaves out.
pub(super) fn enhance_all(session: &mut Session, list: &ClassList, plan: &mut TreePlan) -> Result<usize, shim::Error> {
    let wanted = by_class(plan);
    let named = |name: &String| list.named(name).iter().map(|&number| (number, name.clone())).collect::<Vec<_>>();
    let names: BTreeMap<u32, String> = wanted.keys().flat_map(named).collect();
    let numbers: Vec<u32> = names.keys().copied().collect();
    let mut enhanced = Enhancing { session, wanted: &wanted, names: &names, left_out: BTreeSet::new(), classes: 0 };
    for group in numbers.chunks(AT_A_TIME) {
        enhanced.group(group)?;
    }
    let Enhancing { left_out, classes, .. } = enhanced;
    plan.left_out.extend(left_out);
    Ok(classes)
}

struct Enhancing<'a> {
    session: &'a mut Session,
    wanted: &'a ByClass,
    names: &'a BTreeMap<u32, String>,
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
        let Self { session, wanted, names, left_out, .. } = self;
        let mut change = |class: u32, file: &[u8]| {
            let name = names.get(&class)?;
            let wanted = wanted.get(name)?;
            match enhance(file, wanted, &HOOKS) {
                Ok(done) => {
                    left_out.extend(done.refused.iter().filter_map(|(place, why)| {
                        let method = wanted.get(*place)?;
                        let what = format!("{name}::{}{}", method.name, method.signature);
                        Some(LeftOut { what, why: LeftOutReason::ClassFile(why.to_string()) })
                    }));
                    (done.changed > 0).then_some(done.class_file)
                }
                Err(why) => {
                    let why = LeftOutReason::ClassFile(why.to_string());
                    left_out.insert(LeftOut { what: name.clone(), why });
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
        let what = self.names.get(&class).cloned().unwrap_or_default();
        let why = match error {
            UNMODIFIABLE => LeftOutReason::Unmodifiable,
            error => LeftOutReason::ClassFile(format!("the VM refuses it, {}", meaning(error))),
        };
        self.left_out.insert(LeftOut { what, why });
    }
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

/// What is wanted of each class: methods that tell of themselves, and natives of which their callers tell.
fn by_class(plan: &TreePlan) -> ByClass {
    let mut wanted = ByClass::new();
    for (number, method) in (0..).zip(&plan.methods).filter(|(_, method)| method.kind == TreeKind::Java) {
        of_method(&mut wanted, method).number = Some(number);
    }
    for (number, native) in (0..).zip(&plan.methods).filter(|(_, method)| method.kind == TreeKind::Native) {
        let callers = native.callers.iter().filter_map(|caller| plan.methods.get(caller.method as usize));
        for caller in callers.filter(|caller| caller.kind == TreeKind::Java) {
            of_method(&mut wanted, caller).native_calls.push(NativeCall {
                class: native.class.replace('.', "/"),
                name: native.method.to_string(),
                signature: native.signature.to_string(),
                number,
            });
        }
    }
    wanted
}

fn of_method<'a>(wanted: &'a mut ByClass, method: &TreeMethod) -> &'a mut Wanted {
    let of_class = wanted.entry(method.class.to_string()).or_default();
    let is_it = |known: &Wanted| known.name == *method.method && known.signature == *method.signature;
    let place = of_class.iter().position(is_it).unwrap_or_else(|| {
        let (name, signature) = (method.method.to_string(), method.signature.to_string());
        of_class.push(Wanted { name, signature, number: None, native_calls: Vec::new() });
        of_class.len() - 1
    });
    &mut of_class[place]
}
