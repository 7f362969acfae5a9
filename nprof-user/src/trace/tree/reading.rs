//! The classes of a target, for the search of calls: what its shim lists, and the files of the classes that the search comes to.

use std::collections::{HashMap, HashSet};

use super::classes::ClassList;
use super::session::Session;
use crate::calls::{Bytecode, Classes, Constants, DeclaredMethod, LoadedClass};
use crate::classfile::{Attribute, CODE, ClassFile, Code, Reader, is_intrinsic};
use crate::shim;

const LINES: &[u8] = b"LineNumberTable";
const BOOTSTRAPS: &[u8] = b"BootstrapMethods";

/// See above.
#[derive(Debug)]
pub(super) struct LoadedClasses<'a> {
    pub session: &'a mut Session,
    pub list: &'a ClassList,
    /// The files that have been read. The VM does not give those of some.
    files: HashMap<u32, Option<Vec<u8>>>,
    methods: HashMap<u32, Vec<DeclaredMethod>>,
}

impl<'a> LoadedClasses<'a> {
    pub(super) fn new(session: &'a mut Session, list: &'a ClassList) -> Self {
        Self { session, list, files: HashMap::new(), methods: HashMap::new() }
    }

    fn file(&mut self, class: u32) -> Result<Option<ClassFile<'_>>, shim::Error> {
        if !self.files.contains_key(&class) {
            let file = self.session.class_file(class)?;
            if let Err(reason) = &file {
                let name = self.list.classes.get(class as usize).map(|class| &*class.name);
                tracing::debug!("no file of class {}: {reason}", name.unwrap_or_default());
            }
            self.files.insert(class, file.ok());
        }
        let file = self.files.get(&class).and_then(Option::as_deref);
        Ok(file.and_then(|file| ClassFile::parse(file).ok()))
    }
}

impl Classes for LoadedClasses<'_> {
    type Error = shim::Error;

    fn loaded(&mut self) -> Result<Vec<LoadedClass>, Self::Error> {
        Ok(self.list.classes.clone())
    }

    fn methods(&mut self, classes: &[u32]) -> Result<Vec<Vec<DeclaredMethod>>, Self::Error> {
        let unknown = classes.iter().copied().filter(|class| !self.methods.contains_key(class));
        let unknown: Vec<u32> = unknown.collect();
        let listed = self.session.methods(&unknown)?;
        self.methods.extend(unknown.into_iter().zip(listed));
        Ok(classes.iter().map(|class| self.methods.get(class).cloned().unwrap_or_default()).collect())
    }

    fn constants(&mut self, class: u32) -> Result<Option<Constants>, Self::Error> {
        let Some(file) = self.file(class)? else { return Ok(None) };
        let bootstraps = named(&file.attributes, &file, BOOTSTRAPS).map(|attribute| attribute.content.to_vec());
        let (count, end) = (file.pool_count, file.pool_end);
        let bytes = self.files.get(&class).and_then(Option::as_deref).unwrap_or_default();
        let bytes = bytes.get(ClassFile::POOL_COUNT_AT + 2..end).unwrap_or_default().to_vec();
        // A class without such an attribute makes no lambdas.
        Ok(Some(Constants { count, bytes, bootstraps: Some(bootstraps.unwrap_or_else(|| vec![0; 2])) }))
    }

    fn bytecode(&mut self, class: u32, method: u32) -> Result<Option<Bytecode>, Self::Error> {
        let declared = self.methods.get(&class).and_then(|methods| methods.get(method as usize)).cloned();
        let (Some(declared), Some(file)) = (declared, self.file(class)?) else { return Ok(None) };
        let is_it = |name: u16, text: &str| file.pool.text(name).as_deref() == Some(text);
        let method = file
            .methods
            .iter()
            .find(|method| is_it(method.name, &declared.name) && is_it(method.descriptor, &declared.signature));
        let code = method.and_then(|method| method.attribute(&file.pool, CODE));
        let Some(code) = code.and_then(|code| Code::parse(code.content).ok()) else { return Ok(None) };
        Ok(Some(Bytecode { bytes: code.bytes.to_vec(), lines: lines(&code.attributes, &file) }))
    }

    fn intrinsics(&mut self, class: u32) -> Result<Vec<u32>, Self::Error> {
        let Some(file) = self.file(class)? else { return Ok(Vec::new()) };
        let marked = file.methods.iter().filter(|method| is_intrinsic(method, &file.pool));
        let names: HashSet<(String, String)> = marked
            .filter_map(|method| Some((file.pool.text(method.name)?, file.pool.text(method.descriptor)?)))
            .collect();
        let is_one = |method: &DeclaredMethod| {
            !names.is_empty() && names.contains(&(method.name.to_string(), method.signature.to_string()))
        };
        let methods = self.methods.get(&class).map_or(&[][..], Vec::as_slice);
        Ok((0..).zip(methods).filter(|(_, method)| is_one(method)).map(|(place, _)| place).collect())
    }
}

fn named<'a>(attributes: &[Attribute<'a>], file: &ClassFile<'_>, name: &[u8]) -> Option<Attribute<'a>> {
    attributes.iter().find(|attribute| file.pool.utf8(attribute.name) == Some(name)).copied()
}

/// Where the lines of a method begin, of all its tables.
fn lines(attributes: &[Attribute<'_>], file: &ClassFile<'_>) -> Vec<(u16, u16)> {
    let tables = attributes.iter().filter(|attribute| file.pool.utf8(attribute.name) == Some(LINES));
    let mut lines: Vec<(u16, u16)> = tables.filter_map(|table| table_of_lines(table.content)).flatten().collect();
    lines.sort_unstable();
    lines
}

fn table_of_lines(content: &[u8]) -> Option<Vec<(u16, u16)>> {
    let mut reader = Reader::new(content);
    let count = reader.u16().ok()?;
    (0..count).map(|_| Some((reader.u16().ok()?, reader.u16().ok()?))).collect()
}
