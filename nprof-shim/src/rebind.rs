//! Binds methods that are bound already: to their stubs, and back.
//!
//! Each method is bound to its stub twice. A thread that makes the code by which compiled callers reach a native reads its
//! address first and installs the code a moment later, or much later on a busy machine; if the method is bound in
//! between, that code calls the old address for ever. Such a thread comes to no safepoint before it is done. So after one,
//! binding once more makes the VM drop whatever was installed. The stub's other entry is used then: the VM does nothing
//! when it is told the address that it knows, and binding to the original in between would let calls go past the stub.

use nprof_common::is_vm_linked;

use crate::agent::Agent;
use crate::helper::{self, Binding, Helpers};
use crate::jni::Jni;
use crate::jvmti::{self, MethodId, MethodName};
use crate::methods::{StubOptions, Wanted};
use crate::pool::Stub;
use crate::scan::{Bound, bound_methods, locate};
use crate::slots::{self, Slots};

/// How often methods are looked for that still have a stub: events that are under way may bind some meanwhile.
const SWEEPS: u32 = 3;

/// Why methods could not be bound.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The VM does not answer.
    #[error(transparent)]
    Vm(#[from] jvmti::Error),
    /// There is no helper class.
    #[error(transparent)]
    Helper(#[from] helper::Error),
    /// Addresses cannot be read.
    #[error(transparent)]
    Slots(#[from] slots::Error),
    /// Some methods are not bound as they should be.
    #[error("{wrong} of {all} methods are not bound as they should be")]
    Verification {
        /// So many.
        wrong: usize,
        /// Of so many.
        all: usize,
    },
}

/// What came of what was wanted.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The methods that have the stubs that they were to get.
    pub(crate) stubbed: Vec<(u32, Stub)>,
    /// How many have their own addresses back.
    pub(crate) restored: usize,
    /// How many are not bound as they should be.
    pub(crate) failed: usize,
}

/// A method that gets a stub.
#[derive(Debug)]
struct Stubbed {
    number: Option<u32>,
    bound: Bound,
    name: MethodName,
    stub: Stub,
}

/// Gives stubs to the methods that were bound before the VM could be asked for their names.
pub(crate) fn early(agent: &Agent, jni: Jni, binds: &[(MethodId, usize)]) -> Result<(), Error> {
    let helpers = agent.helpers(jni)?;
    jni.ensure_room(binds.len());
    let with_class = |&(id, address): &(MethodId, usize)| {
        let class = agent.jvmti.class_of(id).ok()?;
        Some(Bound { class, of_platform: helpers.is_of_platform(agent.jvmti, jni, class), id, address })
    };
    // Where addresses cannot be read the events' must do, and what the VM says.
    let slots = agent.slots(jni, helpers).ok();
    let stubbed = choose(agent, jni, binds.iter().filter_map(with_class));
    let refused = bind_to_stubs(agent, jni, helpers, slots, &stubbed)?;
    match slots {
        Some(slots) => verify(slots, jni, &stubbed),
        None if refused == 0 => Ok(()),
        None => Err(Error::Verification { wrong: refused, all: stubbed.len() }),
    }
}

/// Gives stubs to methods that are to be watched, and others their own addresses back.
pub(crate) fn apply(agent: &Agent, jni: Jni, wanted: Vec<Wanted>) -> Result<Outcome, Error> {
    let helpers = agent.helpers(jni)?;
    let slots = agent.slots(jni, helpers)?;
    jni.ensure_room(wanted.len());
    let (mut outcome, mut stubbed, mut restored) = (Outcome::default(), Vec::new(), Vec::new());
    for wanted in wanted {
        let bound = locate(agent, jni, helpers, slots, &wanted);
        let stub = bound.and_then(|bound| Stub::at(bound.address));
        match (wanted.options, bound) {
            (Some(options), Some(bound)) => match stub_for(agent, &wanted, bound, options) {
                Some(chosen) if stub == Some(chosen) => outcome.stubbed.push((wanted.number, chosen)),
                Some(stub) => stubbed.push(Stubbed { number: Some(wanted.number), bound, name: wanted.name, stub }),
                None => outcome.failed += 1,
            },
            (Some(_), None) => outcome.failed += 1,
            (None, Some(bound)) => restored.extend(stub.map(|stub| (bound, wanted.name, stub))),
            (None, None) => {}
        }
    }
    if !stubbed.is_empty() {
        bind_to_stubs(agent, jni, helpers, Some(slots), &stubbed)?;
    }
    for stubbed in stubbed {
        match stubbed.number.filter(|_| !is_wrong(slots, jni, &stubbed)) {
            Some(number) => outcome.stubbed.push((number, stubbed.stub)),
            None => outcome.failed += 1,
        }
    }
    let bindings = restored.iter().map(|(bound, name, stub)| binding(*bound, name.clone(), stub.original()));
    helpers.bind(jni, &bindings.collect::<Vec<_>>())?;
    let left = restored.iter().filter(|(bound, ..)| bound.current(slots, jni).and_then(Stub::at).is_some()).count();
    outcome.restored += restored.len() - left;
    outcome.failed += left;
    Ok(outcome)
}

/// The stub of a method that is wanted.
fn stub_for(agent: &Agent, wanted: &Wanted, bound: Bound, options: StubOptions) -> Option<Stub> {
    if is_vm_linked(&wanted.name.dotted_class()) {
        return None;
    }
    agent.methods.stub_for(wanted.number, bound.native(), options)
}

/// Gives all methods their own addresses back that still have a stub's. Tells how many have one for all that.
pub(crate) fn restore(agent: &Agent, jni: Jni) -> Result<usize, Error> {
    let helpers = agent.helpers(jni)?;
    let slots = agent.slots(jni, helpers)?;
    let mut left = 0;
    for _ in 0..SWEEPS {
        let stubbed = bound_methods(agent, jni, helpers, slots)?;
        let bindings: Vec<Binding> = stubbed.into_iter().filter_map(|bound| original(agent, bound)).collect();
        left = bindings.len();
        if left == 0 {
            break;
        }
        helpers.bind(jni, &bindings)?;
    }
    Ok(left)
}

fn choose(agent: &Agent, jni: Jni, bound: impl Iterator<Item = Bound>) -> Vec<Stubbed> {
    let stub = |bound: Bound| {
        let name = agent.jvmti.name_of(bound.class, bound.id).ok()?;
        let stub = agent.stub_for(jni, bound, &name)?;
        Some(Stubbed { number: None, bound, name, stub })
    };
    bound.filter_map(stub).collect()
}

/// Binds methods to their stubs, so that no code calls their natives past them. Tells how many the VM refused.
fn bind_to_stubs(
    agent: &Agent,
    jni: Jni,
    helpers: &Helpers,
    slots: Option<&Slots>,
    stubbed: &[Stubbed],
) -> Result<usize, Error> {
    helpers.bind(jni, &bindings(slots, jni, stubbed, Stub::entry))?;
    let thread = agent.jvmti.current_thread()?;
    let passed = agent.jvmti.pass_safepoint(thread);
    jni.forget_thread(thread);
    passed?;
    Ok(helpers.bind(jni, &bindings(slots, jni, stubbed, Stub::second_entry))?)
}

/// What binds methods to their stubs: those that are still bound as they were found or as we have bound them. Others
/// have been bound by the application meanwhile, and the event has given them other stubs.
fn bindings(slots: Option<&Slots>, jni: Jni, stubbed: &[Stubbed], entry: fn(Stub) -> usize) -> Vec<Binding> {
    let is_current = |stubbed: &&Stubbed| {
        let Some(slots) = slots else { return true };
        let bound = stubbed.bound.current(slots, jni);
        bound == Some(stubbed.bound.address) || bound.and_then(Stub::at) == Some(stubbed.stub)
    };
    let binding = |stubbed: &Stubbed| binding(stubbed.bound, stubbed.name.clone(), entry(stubbed.stub));
    stubbed.iter().filter(is_current).map(binding).collect()
}

fn binding(Bound { class, of_platform, .. }: Bound, name: MethodName, address: usize) -> Binding {
    let MethodName { name, signature, .. } = name;
    Binding { class, name, signature, address, of_platform }
}

/// What binds a method that has a stub to the native behind it.
fn original(agent: &Agent, bound: Bound) -> Option<Binding> {
    let stub = Stub::at(bound.address)?;
    let name = agent.jvmti.name_of(bound.class, bound.id).ok()?;
    Some(binding(bound, name, stub.original()))
}

/// Checks that no method is bound to its native still. It need not be our stub that it is bound to: another agent may
/// have put its own code before that.
fn verify(slots: &Slots, jni: Jni, stubbed: &[Stubbed]) -> Result<(), Error> {
    match stubbed.iter().filter(|stubbed| is_wrong(slots, jni, stubbed)).count() {
        0 => Ok(()),
        wrong => Err(Error::Verification { wrong, all: stubbed.len() }),
    }
}

fn is_wrong(slots: &Slots, jni: Jni, stubbed: &Stubbed) -> bool {
    stubbed.bound.current(slots, jni).is_none_or(|at| at == stubbed.stub.original())
}
