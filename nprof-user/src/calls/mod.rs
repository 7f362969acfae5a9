//! Which methods a method may call, down to a depth: from the bytecode of the classes that a VM has loaded.
//!
//! Breadth first from the entry methods. A call of a static method, a constructor or one of `super` leads to one method. Any other may lead to each method
//! that overrides the one it names, in any class that is loaded. Lambdas and method references are called from where they
//! are made. What reflection and method handles call is not known, and said to be so. [`Limits`] bound what is read and chosen.
//!
//! Native methods, and those that the VM puts code of its own in the place of (intrinsics), cannot tell of themselves. The methods that call them tell of them, so what they
//! call themselves is not followed.

mod hand_overs;
mod hierarchy;
mod native_entries;
mod nodes;
mod plan;
mod question;
mod references;
mod reserved;
mod resolver;
mod search;

use crate::enhance::Wanted;
use crate::model::{SharedStr, TreePlan};

pub use hand_overs::changed_for_tasks;
pub use plan::plan;
pub use question::{Limits, Question};

/// A loaded class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedClass {
    /// As `Class.getName()` says it.
    pub name: SharedStr,
    /// A number for its class loader; 0 for the boot loader.
    pub loader: u32,
    /// The class that it extends, by its number.
    pub superclass: Option<u32>,
    /// The interfaces that it names.
    pub interfaces: Vec<u32>,
    /// As the JVM specification numbers them: whether it is an interface is read.
    pub flags: u16,
    /// Whether the VM lets it be changed.
    pub is_modifiable: bool,
}

/// A method of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredMethod {
    /// Its name.
    pub name: SharedStr,
    /// Its descriptor.
    pub signature: SharedStr,
    /// As the JVM specification numbers them: `static`, `private`, `native`, `abstract` are read.
    pub flags: u16,
}

/// The constants of a class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Constants {
    /// How many, plus one: `constant_pool_count`.
    pub count: u16,
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// The content of the attribute `BootstrapMethods`, where it is known. JVMTI does not tell it; without it a method that makes one lambda is taken
    /// to make each that may be its.
    pub bootstraps: Option<Vec<u8>>,
}

/// The code of a method.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bytecode {
    /// Its instructions, as a class file has them.
    pub bytes: Vec<u8>,
    /// Where its lines begin, and their numbers.
    pub lines: Vec<(u16, u16)>,
}

/// The classes of a VM. Classes are named by their place in [`Classes::loaded`], methods by theirs in [`Classes::methods`].
pub trait Classes {
    /// Why nothing can be asked any more.
    type Error;

    /// All loaded classes. This is asked once.
    ///
    /// # Errors
    /// When the VM cannot be asked.
    fn loaded(&mut self) -> Result<Vec<LoadedClass>, Self::Error>;

    /// The methods that classes declare, class by class; none of one that is not prepared yet. They are asked for where a search comes to
    /// them: the VM keeps something for each method that it tells of.
    ///
    /// # Errors
    /// When the VM cannot be asked.
    fn methods(&mut self, classes: &[u32]) -> Result<Vec<Vec<DeclaredMethod>>, Self::Error>;

    /// The constants of a class; `None` if the VM does not give them. They are asked for once for each class.
    ///
    /// # Errors
    /// When the VM cannot be asked.
    fn constants(&mut self, class: u32) -> Result<Option<Constants>, Self::Error>;

    /// The code of a method; `None` if the VM does not give it.
    ///
    /// # Errors
    /// When the VM cannot be asked.
    fn bytecode(&mut self, class: u32, method: u32) -> Result<Option<Bytecode>, Self::Error>;

    /// The methods of a class that the VM may put code of its own in the place of. This is asked once for each class.
    ///
    /// # Errors
    /// When the VM cannot be asked.
    fn intrinsics(&mut self, class: u32) -> Result<Vec<u32>, Self::Error>;
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Planned {
    /// For people, and for those who read the events.
    pub plan: TreePlan,
    /// For the transformer: the classes to change, each once.
    pub classes: Vec<PlannedClass>,
    /// Whether methods of the plan may hand tasks to other threads.
    pub hands_over: bool,
}

/// A class to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedClass {
    /// Its number in [`Classes::loaded`].
    pub class: u32,
    /// What to change in it.
    pub wanted: Vec<Wanted>,
}
