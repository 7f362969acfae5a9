//! `nprof methods` says what the VM itself says: every method, every address.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use nprof_tests::code::{FileMapping, locate, mappings};
use nprof_tests::jdk::Jdk;
use nprof_tests::name::MethodName;
use nprof_tests::nprof::methods;
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::MethodList;
use nprof_tests::require::{on_every_jdk, traced_on_every_jdk};
use nprof_tests::target::cargo_target_dir;
use nprof_tests::truth::Truth;

/// Where a bound method's function begins.
type Place = (String, u64);

/// The list and the truth of one moment: the truth is the same before and after the list was made.
struct Observed {
    list: MethodList,
    truth: Truth,
    mappings: Vec<FileMapping>,
}

fn observe(jdk: &Jdk) -> Result<Observed> {
    let mut target = RemoteProcess::truth(jdk)?;
    // The first time binds what the agent itself needs.
    dump(&mut target)?;
    let truth = dump(&mut target)?;
    let list = methods(target.pid(), &[])?;
    ensure!(dump(&mut target)? == truth, "the target is not at rest");
    Ok(Observed { list, truth, mappings: mappings(target.pid())? })
}

fn dump(target: &mut RemoteProcess) -> Result<Truth> {
    let file = cargo_target_dir().join(format!("test-targets/truth-{}", target.pid()));
    target.run(&format!("dump {}", file.display()))?;
    let truth = Truth::read(&file);
    std::fs::remove_file(&file)?;
    truth
}

impl Observed {
    /// Where the agent saw the methods of a name bound.
    fn true_places(&self, method: &MethodName) -> Result<Vec<Place>> {
        let addresses = self.truth.methods.get(method).map(Vec::as_slice).unwrap_or_default();
        let bound = addresses.iter().filter(|&&address| address != 0);
        let places = bound.map(|&address| {
            locate(&self.mappings, address).with_context(|| format!("{method} is bound to {address:#x}, in no file"))
        });
        let mut places = places.collect::<Result<Vec<_>>>()?;
        places.sort();
        Ok(places)
    }

    /// Where nprof says that the methods are bound.
    fn listed_places(&self) -> BTreeMap<MethodName, Vec<Place>> {
        let mut places: BTreeMap<MethodName, Vec<Place>> = BTreeMap::new();
        for listed in &self.list.methods {
            let of_name = places.entry(listed.name()).or_default();
            let bound = listed.bound == "export" || listed.bound == "registered";
            if let (true, Some(library), Some(entry)) = (bound, &listed.library, listed.entry) {
                of_name.push((library.clone(), entry));
            }
        }
        places.values_mut().for_each(|of_name| of_name.sort());
        places
    }
}

/// Check that the agent sees bound, registered and unbound natives: a truth without them would prove nothing.
#[test]
fn the_agent_sees_every_sort_of_native() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut target = RemoteProcess::truth(jdk)?;
        let truth = dump(&mut target)?;
        let bound = |class, method, signature| truth.methods[&MethodName::new(class, method, signature)] != [0];
        ensure!(bound("targets.Plain", "add", "(II)I"), "a called native is not bound");
        ensure!(bound("targets.Registered", "hidden", "(I)I"), "a registered native is not bound");
        ensure!(bound("java.lang.Object", "hashCode", "()I"), "a bind of the primordial phase is missing");
        ensure!(!bound("targets.Plain", "twice", "(J)J"), "a native that was never called is bound");
        ensure!(truth.methods.contains_key(&MethodName::new("targets.Été", "𝒳", "()I")), "names are damaged");
        Ok(())
    })
}

/// Check that every native method of every prepared class is listed, as often as there are classes of its name.
#[test]
fn none_is_missing() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let seen = observe(jdk)?;
        let mut listed: BTreeMap<MethodName, usize> = BTreeMap::new();
        seen.list.methods.iter().for_each(|method| *listed.entry(method.name()).or_default() += 1);
        let missing: Vec<String> = seen
            .truth
            .methods
            .iter()
            .filter(|(name, addresses)| listed.get(name).copied().unwrap_or(0) < addresses.len())
            .map(|(name, _)| name.to_string())
            .collect();
        ensure!(missing.is_empty(), "{} of {}: {missing:#?}", missing.len(), seen.truth.methods.len());
        Ok(())
    })
}

/// Check that nothing is listed but what exists. JVMTI refuses to tell the methods of classes that are not prepared.
#[test]
fn none_is_extra() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let seen = observe(jdk)?;
        let extra: Vec<String> = seen
            .list
            .methods
            .iter()
            .filter(|listed| !seen.truth.methods.contains_key(&listed.name()))
            .filter(|listed| !seen.truth.unprepared.contains(&listed.class))
            .map(|listed| listed.name().to_string())
            .collect();
        ensure!(extra.is_empty(), "{extra:#?}");
        Ok(())
    })
}

/// Check that each method is bound to the function that the VM announced, and to none where it announced none.
#[test]
fn every_address_is_equal() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let seen = observe(jdk)?;
        let (mut wrong, mut bound) = (Vec::new(), 0);
        for (name, listed) in seen.listed_places() {
            let truth = seen.true_places(&name)?;
            bound += truth.len();
            if listed != truth {
                wrong.push(format!("{name}: listed {listed:x?}, bound {truth:x?}"));
            }
        }
        ensure!(wrong.is_empty(), "{} differ:\n    {}", wrong.len(), wrong.join("\n    "));
        ensure!(bound > 150, "only {bound} methods are bound: nothing was proven");
        Ok(())
    })
}

/// Check that the list says how each sort of method is bound, and where its probe would sit.
#[test]
fn each_sort_is_described() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let list = observe(jdk)?.list;
        for (class, method, bound) in [
            ("targets.Plain", "add", "export"),
            ("targets.Registered", "hidden", "registered"),
            ("targets.Plain", "twice", "predicted"),
            ("targets.Plain", "over", "predicted"),
            ("targets.Outer$Inner", "inner", "predicted"),
            ("targets.Été", "日本", "predicted"),
            ("targets.Été", "_1", "predicted"),
            ("targets.Été", "𝒳", "predicted"),
        ] {
            let listed = list.needed(class, method)?;
            ensure!(listed.bound == bound, "{class}::{method} is {}, not {bound}", listed.bound);
            ensure!(listed.traceable && listed.offset >= listed.entry && listed.reason.is_none(), "{listed:?}");
            ensure!(listed.library.as_deref() == Some("libshapes.so"), "{listed:?}");
        }
        let intrinsic = list.needed("java.lang.invoke.MethodHandle", "linkToStatic")?;
        ensure!(!intrinsic.traceable && intrinsic.reason.as_deref() == Some("intrinsic"), "{intrinsic:?}");
        Ok(())
    })
}

/// Check that probes move to the cheapest honest place and nowhere else.
#[test]
fn probes_sit_where_they_must() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let list = observe(jdk)?.list;
        for (method, moved_by, cost) in [
            ("pushFirst", 0, "emulated"),
            ("movFirst", 0, "single-stepped"),
            ("movThenPush", 9, "emulated"),
            ("movThenLoop", 0, "single-stepped"),
            ("testThenBranch", 2, "emulated"),
            ("endbrFirst", 4, "emulated"),
            ("subThenCall", 0, "single-stepped"),
        ] {
            let listed = list.needed("targets.Entries", method)?;
            let (entry, offset) = (listed.entry.context("no entry")?, listed.offset.context("no offset")?);
            ensure!(offset - entry == moved_by, "{method}: moved by {} instead of {moved_by}", offset - entry);
            ensure!(listed.cost.as_deref() == Some(cost), "{method}: {:?} instead of {cost}", listed.cost);
        }
        Ok(())
    })
}
