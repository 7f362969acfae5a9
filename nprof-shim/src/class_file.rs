//! Writes a class file with static methods: as much of the format as the helper class needs.

/// Java 8: the newest whose methods need no extra tables, and old enough for every VM.
const MAJOR_VERSION: u16 = 52;
const FINAL_SUPER: u16 = 0x0030;
const PUBLIC: u16 = 0x0001;
const STATIC: u16 = 0x0008;
const NATIVE: u16 = 0x0100;

const UTF8: u8 = 1;
const CLASS: u8 = 7;
const METHOD_REFERENCE: u8 = 10;
const NAME_AND_TYPE: u8 = 12;

/// The body of a method.
#[derive(Debug)]
pub(crate) struct Code<'a> {
    pub(crate) stack: u16,
    pub(crate) locals: u16,
    pub(crate) bytes: &'a [u8],
}

/// A class that is being written.
#[derive(Debug)]
pub(crate) struct ClassFile {
    constants: Vec<u8>,
    constant_count: u16,
    methods: Vec<u8>,
    method_count: u16,
    this: u16,
    parent: u16,
    flags: u16,
}

impl ClassFile {
    /// A class with this name, with slashes.
    pub(crate) fn new(name: &str) -> Self {
        let mut class = Self {
            constants: Vec::new(),
            constant_count: 0,
            methods: Vec::new(),
            method_count: 0,
            this: 0,
            parent: 0,
            flags: FINAL_SUPER,
        };
        class.this = class.class(name);
        class.parent = class.class("java/lang/Object");
        class
    }

    /// The same, for all to see.
    pub(crate) fn public(name: &str) -> Self {
        let class = Self::new(name);
        Self { flags: FINAL_SUPER | PUBLIC, ..class }
    }

    /// Adds a static native method.
    pub(crate) fn native_method(&mut self, name: &str, signature: &str) {
        self.method(STATIC | NATIVE, name, signature);
        self.methods.extend(0u16.to_be_bytes());
    }

    /// Adds a static method with a body.
    pub(crate) fn static_method(&mut self, name: &str, signature: &str, code: &Code<'_>) {
        self.method_with_code(STATIC, (name, signature), code);
    }

    /// The same, for all to call.
    pub(crate) fn public_static_method(&mut self, name: &str, signature: &str, code: &Code<'_>) {
        self.method_with_code(PUBLIC | STATIC, (name, signature), code);
    }

    fn method_with_code(&mut self, flags: u16, (name, signature): (&str, &str), code: &Code<'_>) {
        let attribute = self.text("Code");
        self.method(flags, name, signature);
        let length = u32::try_from(code.bytes.len()).unwrap_or(u32::MAX);
        // One attribute: stack, locals and length of the code, the code, no handlers, no attributes.
        self.methods.extend(1u16.to_be_bytes());
        self.methods.extend(attribute.to_be_bytes());
        self.methods.extend(length.saturating_add(12).to_be_bytes());
        self.methods.extend(code.stack.to_be_bytes());
        self.methods.extend(code.locals.to_be_bytes());
        self.methods.extend(length.to_be_bytes());
        self.methods.extend(code.bytes);
        self.methods.extend([0; 4]);
    }

    /// The constant by which code calls a method of this class.
    pub(crate) fn method_reference(&mut self, name: &str, signature: &str) -> u16 {
        self.reference_of(self.this, name, signature)
    }

    /// The same of another class.
    pub(crate) fn reference(&mut self, class: &str, name: &str, signature: &str) -> u16 {
        let class = self.class(class);
        self.reference_of(class, name, signature)
    }

    fn reference_of(&mut self, class: u16, name: &str, signature: &str) -> u16 {
        let [name, signature] = [name, signature].map(|text| self.text(text));
        let name_and_type = self.constant(NAME_AND_TYPE, &[name, signature]);
        self.constant(METHOD_REFERENCE, &[class, name_and_type])
    }

    /// The whole file.
    pub(crate) fn finish(self) -> Vec<u8> {
        let mut file = 0xcafe_babe_u32.to_be_bytes().to_vec();
        for number in [0, MAJOR_VERSION, self.constant_count + 1] {
            file.extend(number.to_be_bytes());
        }
        file.extend(self.constants);
        // No interfaces and no fields; after the methods no attributes.
        for number in [self.flags, self.this, self.parent, 0, 0, self.method_count] {
            file.extend(number.to_be_bytes());
        }
        file.extend(self.methods);
        file.extend([0; 2]);
        file
    }

    fn method(&mut self, flags: u16, name: &str, signature: &str) {
        let [name, signature] = [name, signature].map(|text| self.text(text));
        self.method_count += 1;
        for number in [flags, name, signature] {
            self.methods.extend(number.to_be_bytes());
        }
    }

    fn class(&mut self, name: &str) -> u16 {
        let name = self.text(name);
        self.constant(CLASS, &[name])
    }

    fn constant(&mut self, tag: u8, of: &[u16]) -> u16 {
        self.constants.push(tag);
        self.constants.extend(of.iter().flat_map(|number| number.to_be_bytes()));
        self.constant_count += 1;
        self.constant_count
    }

    fn text(&mut self, text: &str) -> u16 {
        self.constants.push(UTF8);
        self.constants.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
        self.constants.extend(text.as_bytes());
        self.constant_count += 1;
        self.constant_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a class without methods is as the format says, to the byte.
    #[test]
    fn an_empty_class() {
        let file = ClassFile::new("A").finish();
        let constants = b"\x01\0\x01A\x07\0\x01\x01\0\x10java/lang/Object\x07\0\x03";
        let expected = [b"\xca\xfe\xba\xbe\0\0\0\x34\0\x05", &constants[..], b"\0\x30\0\x02\0\x04\0\0\0\0\0\0\0\0"];
        assert_eq!(file, expected.concat());
    }
}
