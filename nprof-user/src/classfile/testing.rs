//! Writes class files for tests.

use super::{CODE, Handler, flag, tag};

/// A class file that is being written: `Made extends java.lang.Object`.
pub(crate) struct Builder {
    constants: Vec<u8>,
    count: u16,
    methods: Vec<u8>,
    method_count: u16,
    major_version: u16,
    this: u16,
    parent: u16,
}

/// The code of a method.
#[derive(Default)]
pub(crate) struct Made<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) handlers: &'a [Handler],
    /// Names and contents of its attributes.
    pub(crate) attributes: &'a [(&'a str, &'a [u8])],
}

impl Builder {
    pub(crate) fn new(major_version: u16) -> Self {
        let (constants, methods) = (Vec::new(), Vec::new());
        let mut new = Self { constants, count: 1, methods, method_count: 0, major_version, this: 0, parent: 0 };
        new.this = new.class("Made");
        new.parent = new.class("java/lang/Object");
        new
    }

    pub(crate) fn constant(&mut self, kind: u8, content: &[u16]) -> u16 {
        self.constants.push(kind);
        self.constants.extend(content.iter().flat_map(|number| number.to_be_bytes()));
        self.count += 1;
        self.count - 1
    }

    pub(crate) fn utf8(&mut self, text: &str) -> u16 {
        self.constants.push(tag::UTF8);
        self.constants.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
        self.constants.extend(text.as_bytes());
        self.count += 1;
        self.count - 1
    }

    pub(crate) fn class(&mut self, name: &str) -> u16 {
        let name = self.utf8(name);
        self.constant(tag::CLASS, &[name])
    }

    pub(crate) fn member(&mut self, class: &str, name: &str, signature: &str) -> u16 {
        let class = self.class(class);
        let [name, signature] = [name, signature].map(|text| self.utf8(text));
        let what = self.constant(tag::NAME_AND_TYPE, &[name, signature]);
        self.constant(tag::METHOD, &[class, what])
    }

    pub(crate) fn method(&mut self, flags: u16, name: &str, signature: &str, code: Option<Made<'_>>) {
        let [name, signature] = [name, signature].map(|text| self.utf8(text));
        self.method_count += 1;
        self.methods.extend([flags, name, signature].iter().flat_map(|number| number.to_be_bytes()));
        self.methods.extend(u16::from(code.is_some()).to_be_bytes());
        if let Some(code) = code {
            let content = self.code(&code);
            self.attribute(std::str::from_utf8(CODE).unwrap(), &content);
        }
    }

    /// A native method with annotations that a VM keeps.
    pub(crate) fn annotated_method(&mut self, name: &str, annotations: &[u8]) {
        let [name, signature] = [name, "()V"].map(|text| self.utf8(text));
        self.method_count += 1;
        self.methods.extend([flag::NATIVE, name, signature, 1].iter().flat_map(|number| number.to_be_bytes()));
        self.attribute("RuntimeVisibleAnnotations", annotations);
    }

    fn code(&mut self, code: &Made<'_>) -> Vec<u8> {
        let mut content = [4_u16.to_be_bytes(), 4_u16.to_be_bytes()].concat();
        content.extend(u32::try_from(code.bytes.len()).unwrap().to_be_bytes());
        content.extend(code.bytes);
        content.extend(u16::try_from(code.handlers.len()).unwrap().to_be_bytes());
        for row in code.handlers {
            content.extend([row.start, row.end, row.handler, row.class].iter().flat_map(|number| number.to_be_bytes()));
        }
        content.extend(u16::try_from(code.attributes.len()).unwrap().to_be_bytes());
        for (name, inner) in code.attributes {
            content.extend(self.utf8(name).to_be_bytes());
            content.extend(u32::try_from(inner.len()).unwrap().to_be_bytes());
            content.extend(*inner);
        }
        content
    }

    fn attribute(&mut self, name: &str, content: &[u8]) {
        let name = self.utf8(name);
        self.methods.extend(name.to_be_bytes());
        self.methods.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
        self.methods.extend(content);
    }

    /// The file, with an attribute of the class that nobody knows.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let unknown = self.utf8("Unknown");
        let mut file = 0xcafe_babe_u32.to_be_bytes().to_vec();
        file.extend([0, self.major_version, self.count].iter().flat_map(|number: &u16| number.to_be_bytes()));
        file.extend(&self.constants);
        let head = [0x21, self.this, self.parent, 0, 0, self.method_count];
        file.extend(head.iter().flat_map(|number| number.to_be_bytes()));
        file.extend(&self.methods);
        file.extend([0, 1]);
        file.extend(unknown.to_be_bytes());
        file.extend([0, 0, 0, 3, 1, 2, 3]);
        file
    }
}
