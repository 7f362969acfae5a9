//! The search, breadth first.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::hand_overs::is_hand_over;
use super::hierarchy::{Hierarchy, MethodId, Targets};
use super::nodes::Nodes;
use super::question::{Limit, Question};
use super::references::{Bootstraps, Reference, Source};
use super::reserved::is_reserved;
use super::resolver::Resolver;
use super::{Bytecode, Classes, Constants, DeclaredMethod, LoadedClass, Planned};
use crate::classfile::{ConstantPool, flag};
use crate::enhance::NativeCall;
use crate::model::{LeftOut, LeftOutReason, TreeKind};
use crate::resolve::pattern::{ClassName, Pattern};

/// What calls methods that it was told of when the program ran: class, and the beginning of the method's name.
const REFLECTION: [(&str, &str); 6] = [
    ("java.lang.reflect.Method", "invoke"),
    ("java.lang.reflect.Constructor", "newInstance"),
    ("java.lang.Class", "newInstance"),
    ("java.lang.reflect.Proxy", "newProxyInstance"),
    ("java.lang.reflect.InvocationHandler", "invoke"),
    ("java.lang.invoke.MethodHandle", "invoke"),
];

/// The VM makes these for lambdas. What they call was found where the lambda is made.
const LAMBDA_CLASS: &str = "$$Lambda";

/// A search that goes on.
pub(super) struct Search<'a, C: Classes> {
    pub(super) resolver: Resolver<'a, C>,
    question: &'a Question,
    pub(super) nodes: Nodes,
    left_out: BTreeSet<LeftOut>,
    limit: Option<Limit>,
    hands_over: bool,
    constants: HashMap<u32, Option<Rc<Constants>>>,
    intrinsics: HashMap<u32, Rc<[u32]>>,
    bytes: usize,
}

impl<'a, C: Classes> Search<'a, C> {
    pub(super) fn new(classes: &'a mut C, hierarchy: Hierarchy, question: &'a Question) -> Self {
        Self {
            resolver: Resolver::new(classes, hierarchy, &question.packages),
            question,
            nodes: Nodes::default(),
            left_out: BTreeSet::new(),
            limit: None,
            hands_over: false,
            constants: HashMap::new(),
            intrinsics: HashMap::new(),
            bytes: 0,
        }
    }

    pub(super) fn finish(self) -> Planned {
        let planned = self.nodes.finish(&self.resolver.hierarchy, self.left_out.into_iter().collect(), self.limit);
        Planned { hands_over: self.hands_over, ..planned }
    }

    /// Makes nodes of the entry methods. Of an interface's method, those that implement it are.
    pub(super) fn choose_entries(&mut self) -> Result<(), C::Error> {
        let matching = self.matching()?;
        self.resolver.default_packages(&matching);
        for id in matching {
            if !self.resolver.hierarchy.is(id, flag::ABSTRACT) {
                self.choose_entry(id)?;
                continue;
            }
            let names = self.resolver.hierarchy.method(id).map(|(_, m)| (m.name.to_string(), m.signature.to_string()));
            let Some((name, signature)) = names else { continue };
            let implementing = self.resolver.implementing(id.0, &name, &signature)?;
            if implementing.is_empty() {
                self.leave_out(self.name(id), LeftOutReason::Abstract);
            }
            for id in implementing {
                self.choose_entry(id)?;
            }
        }
        Ok(())
    }

    fn choose_entry(&mut self, id: MethodId) -> Result<(), C::Error> {
        let kind = self.kind(id)?;
        self.resolver.add_entry(id.0);
        self.choose(id, kind, 0, true);
        Ok(())
    }

    /// What a method is as a node.
    fn kind(&mut self, id: MethodId) -> Result<TreeKind, C::Error> {
        if let Some(known) = self.nodes.kind(id) {
            return Ok(known);
        }
        if self.resolver.hierarchy.is(id, flag::NATIVE) {
            return Ok(TreeKind::Native);
        }
        let may_be = self.resolver.hierarchy.method(id).is_some_and(|(class, method)| may_be_intrinsic(class, method));
        let is_one = may_be && self.intrinsics(id.0)?.contains(&id.1);
        Ok(if is_one { TreeKind::Intrinsic } else { TreeKind::Java })
    }

    fn intrinsics(&mut self, class: u32) -> Result<Rc<[u32]>, C::Error> {
        if let Some(known) = self.intrinsics.get(&class) {
            return Ok(Rc::clone(known));
        }
        let found: Rc<[u32]> = self.resolver.classes.intrinsics(class)?.into();
        self.intrinsics.insert(class, Rc::clone(&found));
        Ok(found)
    }

    /// The methods that the patterns of entry methods select.
    fn matching(&mut self) -> Result<Vec<MethodId>, C::Error> {
        let entries = &self.question.entries;
        let of_class = |(number, class): (u32, &LoadedClass)| {
            let name = ClassName::of(&class.name);
            (number, entries.iter().filter(|pattern| pattern.matches_class(&name)).collect())
        };
        let mut classes: Vec<(u32, Vec<&Pattern>)> = self.resolver.hierarchy.classes().map(of_class).collect();
        classes.retain(|(_, patterns)| !patterns.is_empty());
        self.resolver.declare(classes.iter().map(|(number, _)| *number))?;
        let selected = |(number, patterns): (u32, Vec<&Pattern>)| {
            let methods = (0..).zip(self.resolver.hierarchy.methods(number));
            let selected = methods.filter(|(_, m)| patterns.iter().any(|p| p.matches_method(&m.name, &m.signature)));
            selected.map(|(method, _)| (number, method)).collect::<Vec<MethodId>>()
        };
        Ok(classes.into_iter().flat_map(selected).collect())
    }

    /// Follows the calls of each node, which finds more nodes.
    pub(super) fn run(&mut self) -> Result<(), C::Error> {
        let mut next = 0;
        while let Some(node) = self.nodes.get(next) {
            let (id, depth, kind) = (node.id, node.depth, node.kind);
            if kind == TreeKind::Java {
                let caller = Caller { id, number: u32::try_from(next).unwrap_or(u32::MAX), depth };
                self.follow(&caller)?;
            }
            next += 1;
        }
        Ok(())
    }

    fn follow(&mut self, caller: &Caller) -> Result<(), C::Error> {
        let Some((references, lines)) = self.references(caller.id)? else {
            let why = "the VM does not give its code, so that what it calls is not known";
            self.leave_out(self.name(caller.id), LeftOutReason::ClassFile(why.to_owned()));
            return Ok(());
        };
        for reference in references {
            let line = line_of(&lines, reference.at);
            self.hands_over = self.hands_over || is_hand_over(&self.resolver.hierarchy, caller.id.0, &reference);
            self.refer(caller, &reference, line)?;
        }
        Ok(())
    }

    /// The references of a method's code, and its lines; `None` if there is no code or a limit is reached.
    #[expect(clippy::type_complexity, reason = "two lists")]
    pub(super) fn references(&mut self, id: MethodId) -> Result<Option<(Vec<Reference>, Vec<(u16, u16)>)>, C::Error> {
        let Some(constants) = self.constants(id.0)? else { return Ok(None) };
        let Some(Bytecode { bytes, lines }) = self.resolver.classes.bytecode(id.0, id.1)? else { return Ok(None) };
        self.bytes += bytes.len();
        let Ok(pool) = ConstantPool::parse(constants.count, &constants.bytes) else { return Ok(None) };
        let bootstraps = constants.bootstraps.as_deref().and_then(|content| Bootstraps::parse(content).ok());
        let method = self.resolver.hierarchy.method(id).map(|(_, method)| method.name.clone());
        let source =
            Source { pool: &pool, bootstraps: bootstraps.as_ref(), method: method.as_deref().unwrap_or_default() };
        Ok(source.references(&bytes).ok().map(|references| (references, lines)))
    }

    /// The constants of a class.
    pub(super) fn constants(&mut self, class: u32) -> Result<Option<Rc<Constants>>, C::Error> {
        if let Some(known) = self.constants.get(&class) {
            return Ok(known.clone());
        }
        let limits = &self.question.limits;
        if self.constants.len() >= limits.classes {
            self.limit.get_or_insert(Limit::Classes(limits.classes));
            return Ok(None);
        }
        if self.bytes >= limits.bytes {
            self.limit.get_or_insert(Limit::Bytes(limits.bytes));
            return Ok(None);
        }
        let constants = self.resolver.classes.constants(class)?.map(Rc::new);
        self.bytes += constants.as_ref().map_or(0, |constants| constants.bytes.len());
        self.constants.insert(class, constants.clone());
        Ok(constants)
    }

    fn refer(&mut self, caller: &Caller, reference: &Reference, line: Option<u16>) -> Result<(), C::Error> {
        let what = format!("{}::{}{}", reference.class, reference.name, reference.signature);
        if REFLECTION.iter().any(|(class, name)| reference.class == *class && reference.name.starts_with(name)) {
            let by = self.name(caller.id);
            self.leave_out(format!("{what}, called by {by}"), LeftOutReason::Reflection);
            return Ok(());
        }
        let targets = self.resolver.targets(caller.id.0, reference)?;
        // A class that is loaded and was never used does not tell of its methods.
        let Some((named, targets)) = targets.and_then(|targets| Some((targets.named?, targets))) else {
            let is_asked_for = self.resolver.is_in_packages(&reference.class);
            let why = if is_asked_for { LeftOutReason::NotLoaded } else { LeftOutReason::Package };
            self.leave_out(what, why);
            return Ok(());
        };
        if targets.methods.is_empty() {
            let why = if self.resolver.is_chosen(named.0) { LeftOutReason::Abstract } else { LeftOutReason::Package };
            self.leave_out(self.name(named), why);
            return Ok(());
        }
        self.refer_to_all(caller, reference, &targets, line)
    }

    fn refer_to_all(
        &mut self,
        caller: &Caller,
        reference: &Reference,
        targets: &Targets,
        line: Option<u16>,
    ) -> Result<(), C::Error> {
        let is_asked_for = targets.named.is_some_and(|named| self.resolver.is_chosen(named.0));
        if !is_asked_for && !targets.methods.iter().any(|method| self.is_in(*method)) {
            let named = targets.named.map(|named| self.name(named)).unwrap_or_default();
            self.leave_out(named, LeftOutReason::Package);
            return Ok(());
        }
        for method in &targets.methods {
            if !self.is_in(*method) {
                // What overrides a method of other packages in other packages is no news.
                if is_asked_for {
                    self.leave_out(self.name(*method), LeftOutReason::Package);
                }
                continue;
            }
            if self.nodes.number(*method).is_none() && caller.depth >= self.question.depth {
                self.leave_out(self.name(*method), LeftOutReason::Depth);
                continue;
            }
            let kind = self.kind(*method)?;
            let told = if kind == TreeKind::Java { None } else { Some(self.told_call(caller.id.0, reference)?) };
            if let Some(Err(why)) = told {
                self.leave_out(self.name(*method), why);
                continue;
            }
            let Some(number) = self.choose(*method, kind, caller.depth + 1, false) else { continue };
            self.nodes.connect(caller.number, number, line);
            if let Some(Ok(call)) = told {
                self.nodes.tell(caller.id, NativeCall { number, ..call });
            }
        }
        Ok(())
    }

    /// The call that a caller is to tell of, since the method cannot; its number is not known yet. The method has to be the only one that the call may lead to.
    pub(super) fn told_call(
        &mut self,
        from: u32,
        reference: &Reference,
    ) -> Result<Result<NativeCall, LeftOutReason>, C::Error> {
        if !reference.is_direct {
            return Ok(Err(LeftOutReason::Reflection));
        }
        if self.resolver.all_targets(from, reference)?.len() > 1 {
            return Ok(Err(LeftOutReason::Ambiguous));
        }
        let (name, signature) = (reference.name.clone(), reference.signature.clone());
        Ok(Ok(NativeCall { class: reference.class.replace('.', "/"), name, signature, number: 0 }))
    }

    /// The number of a method, which is a node from now on if it can be one.
    fn choose(&mut self, id: MethodId, kind: TreeKind, depth: u32, is_entry: bool) -> Option<u32> {
        let (class, method) = self.resolver.hierarchy.method(id)?;
        if let Some(known) = self.nodes.number(id) {
            return Some(known);
        }
        if is_reserved(class, method) {
            self.leave_out(self.name(id), LeftOutReason::Reserved);
            return None;
        }
        if kind == TreeKind::Java && !class.is_modifiable {
            if !class.name.contains(LAMBDA_CLASS) {
                self.leave_out(self.name(id), LeftOutReason::Unmodifiable);
            }
            return None;
        }
        let most = self.question.limits.methods;
        if self.nodes.len() >= most {
            self.limit.get_or_insert(Limit::Methods(most));
            self.leave_out(self.name(id), LeftOutReason::Limit);
            return None;
        }
        Some(self.nodes.add(id, kind, depth, is_entry))
    }

    /// Whether nodes may be of a package that was asked for, or are entry methods anyway.
    fn is_in(&mut self, method: MethodId) -> bool {
        self.nodes.number(method).is_some() || self.resolver.is_chosen(method.0)
    }

    pub(super) fn leave_out(&mut self, what: String, why: LeftOutReason) {
        let most = self.question.limits.left_out;
        if self.left_out.len() < most {
            self.left_out.insert(LeftOut { what, why });
        } else if !self.left_out.contains(&LeftOut { what, why }) {
            self.limit.get_or_insert(Limit::LeftOut(most));
        }
    }

    /// `com.acme.Svc::get(I)V`.
    pub(super) fn name(&self, id: MethodId) -> String {
        let named = self.resolver.hierarchy.method(id);
        named.map(|(class, m)| format!("{}::{}{}", class.name, m.name, m.signature)).unwrap_or_default()
    }
}

/// A node whose calls are followed.
struct Caller {
    id: MethodId,
    number: u32,
    depth: u32,
}

/// Whether it is worth asking. The constructor of `Object` is marked, too, but called all the same.
fn may_be_intrinsic(class: &LoadedClass, method: &DeclaredMethod) -> bool {
    class.is_modifiable && !(*method.name == *"<init>" && *class.name == *"java.lang.Object")
}

/// The line of the instruction at a place.
fn line_of(lines: &[(u16, u16)], at: usize) -> Option<u16> {
    let before = lines.iter().filter(|(start, _)| usize::from(*start) <= at);
    before.max_by_key(|(start, _)| *start).map(|(_, line)| *line)
}
