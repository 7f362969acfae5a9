//! The transformer on small class files, and on broken ones. That the VM takes what it makes is in the tests of real JVMs.

use super::{Enhanced, Hooks, NativeCall, Refusal, TaskPart, Wanted, enhance};
use crate::classfile::testing::{Builder, Made};
use crate::classfile::{CODE, ClassFile, Code, Handler, Malformed, opcode, tag};

const HOOKS: Hooks<'static> =
    Hooks { class: "Hooks", enter: "enter", leave: "leave", threw: "threw", hands: "hands", runs: "runs", ran: "ran" };

const STATIC: u16 = 8;
const NATIVE: u16 = 0x100;

/// The bytes that call a hook, with a small number.
const CALL: usize = 4;

fn wanted(name: &str, number: u32) -> Wanted {
    let (name, signature) = (name.to_owned(), "()V".to_owned());
    Wanted { name, signature, number: Some(number), native_calls: Vec::new(), task: None }
}

/// A class with a method `m` of this code.
fn class_with(major_version: u16, code: &Made<'_>) -> Vec<u8> {
    let mut builder = Builder::new(major_version);
    let Made { bytes, handlers, attributes } = *code;
    builder.method(STATIC, "m", "()V", Some(Made { bytes, handlers, attributes }));
    builder.finish()
}

fn enhanced(file: &[u8]) -> Enhanced {
    let enhanced = enhance(file, &[wanted("m", 1)], &HOOKS).unwrap();
    assert_eq!(enhanced.refused, []);
    enhanced
}

/// Why the method `m` of this code is refused.
fn refusal(major_version: u16, bytes: &[u8]) -> Refusal {
    let file = class_with(major_version, &Made { bytes, ..Made::default() });
    let mut enhanced = enhance(&file, &[wanted("m", 1)], &HOOKS).unwrap();
    assert_eq!((enhanced.changed, &enhanced.class_file), (0, &file));
    enhanced.refused.remove(0).1
}

/// Gives the code of the method `m` to `look`.
fn with_code<T>(file: &[u8], look: impl FnOnce(&ClassFile<'_>, &Code<'_>) -> T) -> T {
    let class = ClassFile::parse(file).unwrap();
    let method = class.methods.iter().find(|method| class.pool.utf8(method.name) == Some(b"m")).unwrap();
    look(&class, &Code::parse(method.attribute(&class.pool, CODE).unwrap().content).unwrap())
}

/// Check that hooks stand where they should, that a loop to the first instruction does not enter again, and that lines, variables, frames and
/// handlers follow; ours is the last handler, and not for the return.
#[test]
fn everything_follows() {
    // 0: iload_0; 1: ifne 0; 4: nop; 5: return; 6: athrow
    let bytes = [0x1a, 0x9a, 0xff, 0xff, 0x00, opcode::RETURN, opcode::ATHROW];
    let handlers = [Handler { start: 0, end: 5, handler: 6, class: 0 }];
    let frames = [0, 2, 0, 70, 7, 0, 4];
    let lines = [0, 2, 0, 0, 0, 10, 0, 5, 0, 11];
    let variables = [0, 1, 0, 0, 0, 7, 0, 1, 0, 1, 0, 0];
    let attributes: &[(&str, &[u8])] =
        &[("StackMapTable", &frames), ("LineNumberTable", &lines), ("LocalVariableTable", &variables), ("Odd", b"odd")];
    let file = class_with(52, &Made { bytes: &bytes, handlers: &handlers, attributes });
    // The second frame is at 0 + 6 + 1, which is beyond the code.
    assert!(matches!(enhance(&file, &[wanted("m", 1)], &HOOKS).unwrap().refused[0].1, Refusal::Malformed(_)));
    let frames = [0, 2, 0, 69, 7, 0, 4];
    let attributes: &[(&str, &[u8])] = &[("StackMapTable", &frames), attributes[1], attributes[2], attributes[3]];
    let file = class_with(52, &Made { bytes: &bytes, handlers: &handlers, attributes });
    let changed = enhanced(&file).class_file;
    with_code(&changed, |class, code| {
        let (body, handler) = (CALL, code.bytes.len() - CALL - 2);
        assert_eq!(code.bytes[..CALL], code_of_call(class, opcode::ICONST_0 + 1, b"enter"));
        assert_eq!(code.bytes[body..body + 5], bytes[..5]);
        assert_eq!(code.bytes[body + 5..body + 9], code_of_call(class, opcode::ICONST_0 + 1, b"leave"));
        assert_eq!(code.bytes[body + 9..handler], bytes[5..]);
        assert_eq!(code.bytes[handler + 1..handler + 5], code_of_call(class, opcode::ICONST_0 + 1, b"threw"));
        let row = |start, end, handler: usize| {
            let handler = u16::try_from(handler).unwrap();
            Handler { start, end, handler, class: 0 }
        };
        assert_eq!(code.handlers, [row(4, 9, 14), row(4, 9, handler), row(14, 15, handler)]);
        assert_eq!((code.max_stack, code.max_locals), (5, 4));
        let attribute = |name: &[u8]| {
            code.attributes.iter().find(|one| class.pool.utf8(one.name) == Some(name)).map(|one| one.content).unwrap()
        };
        assert_eq!(attribute(b"LineNumberTable"), [0, 2, 0, 0, 0, 10, 0, 9, 0, 11]);
        assert_eq!(attribute(b"LocalVariableTable"), [0, 1, 0, 0, 0, 15, 0, 1, 0, 1, 0, 0]);
        assert_eq!(attribute(b"Odd"), b"odd");
        let new = attribute(b"StackMapTable");
        // At 4 the same, at 14 one on the stack, and then ours, with no locals and an exception.
        assert_eq!((&new[..8], &new[8..13]), (&[0, 3, 4, 73, 7, 0, 4, 255][..], &[0, 0, 0, 0, 0][..]));
    });
}

/// The bytes of a call of a hook.
fn code_of_call(class: &ClassFile<'_>, push: u8, hook: &[u8]) -> [u8; CALL] {
    let is_it = |at: &u16| class.pool.member(*at).is_some_and(|member| member.name == hook);
    let methods = class.pool.tags().filter(|(_, kind)| *kind == tag::METHOD).map(|(at, _)| at);
    let [high, low] = methods.into_iter().find(is_it).unwrap().to_be_bytes();
    [push, opcode::INVOKESTATIC, high, low]
}

/// Check that what is not wanted keeps its bytes.
#[test]
fn the_rest_keeps_its_bytes() {
    let mut builder = Builder::new(61);
    for name in ["before", "m", "after"] {
        let made = Made { bytes: &[0, opcode::RETURN], attributes: &[("Odd", b"123")], ..Made::default() };
        builder.method(STATIC, name, "()V", Some(made));
    }
    builder.method(STATIC | NATIVE, "n", "()V", None);
    let old = builder.finish();
    let Enhanced { class_file: new, changed, refused, .. } =
        enhance(&old, &[wanted("m", 1), wanted("n", 2), wanted("o", 3), wanted("m", 4)], &HOOKS).unwrap();
    assert_eq!((changed, &refused[..]), (1, &[(1, Refusal::NoCode), (2, Refusal::Missing), (3, Refusal::Twice)][..]));
    let [before, after] = [&old, &new].map(|file| ClassFile::parse(file).unwrap());
    assert_eq!(old[ClassFile::POOL_COUNT_AT + 2..before.pool_end], new[ClassFile::POOL_COUNT_AT + 2..before.pool_end]);
    let code = |class: &ClassFile<'_>, method: usize| {
        let code = class.methods[method].attribute(&class.pool, CODE).unwrap();
        (code.at, code.end())
    };
    let [(old_at, old_end), (new_at, new_end)] = [code(&before, 1), code(&after, 1)];
    assert_eq!(old[before.pool_end..old_at], new[after.pool_end..new_at]);
    assert_eq!(old[old_end..], new[new_end..]);
}

/// Check that a `goto` gets longer where it no longer reaches, that the words of a switch are aligned, and that a conditional branch is refused.
#[test]
fn far_branches() {
    let far = |first: &[u8]| {
        let mut bytes = first.to_vec();
        bytes.resize(0x7fff, 0);
        bytes.push(opcode::RETURN);
        bytes
    };
    // A return on the way makes it longer.
    let mut bytes = far(&[opcode::GOTO, 0x7f, 0xff]);
    bytes[4] = opcode::RETURN;
    let file = class_with(49, &Made { bytes: &bytes, ..Made::default() });
    with_code(&enhanced(&file).class_file, |_, code| {
        assert_eq!(code.bytes[CALL..CALL + 5], [opcode::GOTO_W, 0, 0, 0x80, 0x05]);
    });
    bytes[0] = 0x9a;
    assert_eq!(refusal(49, &bytes), Refusal::OutOfReach(0));
    bytes.resize(0xffff, 0);
    bytes[..3].fill(0);
    assert!(matches!(refusal(49, &bytes), Refusal::TooLarge(0x1_0000..)));

    let mut switch = vec![0, opcode::TABLESWITCH, 0, 0];
    for word in [16, 1, 1, 15_i32] {
        switch.extend(word.to_be_bytes());
    }
    switch.resize(20, 0);
    switch.extend([opcode::RETURN]);
    let targets = |words: [i32; 4]| words.into_iter().flat_map(i32::to_be_bytes).collect::<Vec<u8>>();
    switch[4..20].copy_from_slice(&targets([19, 1, 1, 19]));
    let file = class_with(49, &Made { bytes: &switch, ..Made::default() });
    with_code(&enhanced(&file).class_file, |_, code| {
        assert_eq!(code.bytes[CALL..CALL + 4], [0, opcode::TABLESWITCH, 0, 0]);
        assert_eq!(code.bytes[CALL + 4..CALL + 20], targets([19, 1, 1, 19])[..]);
    });
}

/// Check that what cannot be changed is refused with its reason.
#[test]
fn refusals() {
    let subroutine = [opcode::JSR, 0, 4, opcode::RETURN, 0x3a, 1, opcode::RET, 1];
    assert_eq!(refusal(52, &subroutine), Refusal::Subroutines);
    let file = class_with(49, &Made { bytes: &subroutine, ..Made::default() });
    assert_eq!(enhanced(&file).changed, 1);
    let malformed = |what, at| Refusal::Malformed(Malformed { what, at });
    assert_eq!(refusal(52, &[0xfe]), malformed("this is no instruction", 0));
    assert_eq!(refusal(52, &[0x99, 0, 2, opcode::RETURN]), malformed("this is within an instruction", 2));
    assert_eq!(refusal(52, &[0x99, 0, 9, opcode::RETURN]), malformed("a branch leads out of the code", 0));
    assert!(matches!(enhance(b"", &[], &HOOKS), Err(Refusal::Malformed(_))));
    let hooks = Hooks { class: "Made", ..HOOKS };
    assert_eq!(enhance(&file, &[wanted("m", 1)], &hooks), Err(Refusal::Hook));
    let mut full = Builder::new(52);
    full.method(STATIC, "m", "()V", Some(Made { bytes: &[opcode::RETURN], ..Made::default() }));
    for _ in 0..65_500 {
        full.constant(tag::STRING, &[1]);
    }
    let full = enhance(&full.finish(), &[wanted("m", 100_000)], &HOOKS);
    assert!(full.is_ok_and(|enhanced| enhanced.changed == 1));
}

/// Check that a constructor is entered before it calls another, that its handler begins after that, and that several ways are refused.
#[test]
fn constructors() {
    for (calls, expected) in [(1, 1), (2, 0), (0, 0)] {
        let mut builder = Builder::new(52);
        let object = builder.class("java/lang/Object");
        let init = builder.member("java/lang/Object", "<init>", "()V").to_be_bytes();
        let [high, low] = object.to_be_bytes();
        // An object is made first, for an argument.
        let mut bytes = vec![opcode::NEW, high, low, opcode::INVOKESPECIAL, init[0], init[1]];
        for _ in 0..calls {
            bytes.extend([opcode::ALOAD_0, opcode::INVOKESPECIAL, init[0], init[1]]);
        }
        bytes.extend([0, opcode::RETURN]);
        builder.method(0, "<init>", "()V", Some(Made { bytes: &bytes, ..Made::default() }));
        let enhanced = enhance(&builder.finish(), &[wanted("<init>", 1)], &HOOKS).unwrap();
        assert_eq!(enhanced.changed, expected);
        if expected == 1 {
            let class = ClassFile::parse(&enhanced.class_file).unwrap();
            let code = Code::parse(class.methods[0].attribute(&class.pool, CODE).unwrap().content).unwrap();
            assert_eq!(code.handlers, [Handler { start: 14, end: 15, handler: 20, class: 0 }]);
        }
    }
}

/// The code of a class's only method, each hook that it calls by its name in the place of the instruction.
fn told(enhanced: &Enhanced) -> Vec<String> {
    let class = ClassFile::parse(&enhanced.class_file).unwrap();
    let code = Code::parse(class.methods[0].attribute(&class.pool, CODE).unwrap().content).unwrap();
    let one = |instruction: crate::classfile::Instruction| match instruction.is_call() {
        true => String::from_utf8_lossy(class.pool.member(instruction.operand(code.bytes)).unwrap().name).into_owned(),
        false => format!("{:02x}", instruction.opcode),
    };
    crate::classfile::Instructions::new(code.bytes).map(|instruction| one(instruction.unwrap())).collect()
}

/// Check that who runs a task says so around everything else, however it ends; that who makes one tells it at once, a constructor as soon as there is
/// an object; and that there is no handler for that.
#[test]
fn tasks() {
    let with = |name: &str, bytes: &dyn Fn([u8; 2]) -> Vec<u8>, number, part| {
        let mut builder = Builder::new(52);
        let init = builder.member("java/lang/Object", "<init>", "()V").to_be_bytes();
        builder.method(0, name, "()V", Some(Made { bytes: &bytes(init), ..Made::default() }));
        let wanted = Wanted { number, task: Some(part), ..wanted(name, 0) };
        let enhanced = enhance(&builder.finish(), &[wanted], &HOOKS).unwrap();
        assert_eq!((enhanced.changed, &enhanced.refused[..]), (1, &[][..]));
        told(&enhanced).join(" ")
    };
    let plain = |_: [u8; 2]| vec![0, opcode::RETURN];
    let made = |[high, low]: [u8; 2]| vec![opcode::ALOAD_0, opcode::INVOKESPECIAL, high, low, 0, opcode::RETURN];
    assert_eq!(with("m", &plain, None, TaskPart::Runs), "2a runs 00 ran b1 ran bf");
    assert_eq!(with("m", &plain, None, TaskPart::RunsMany), "01 runs 00 ran b1 ran bf");
    assert_eq!(with("m", &plain, None, TaskPart::Next(Some(2))), "ran 2c runs 00 b1");
    assert_eq!(with("m", &plain, None, TaskPart::Next(None)), "ran 01 runs 00 b1");
    assert_eq!(with("m", &plain, Some(1), TaskPart::Gives), "04 enter 00 04 leave b1 59 04 threw bf");
    assert_eq!(with("m", &plain, Some(1), TaskPart::Runs), "2a runs 04 enter 00 04 leave ran b1 59 04 threw ran bf");
    assert_eq!(with("m", &plain, None, TaskPart::Hands(2)), "2a 05 hands 00 b1");
    assert_eq!(with("<init>", &made, None, TaskPart::Hands(0)), "2a <init> 2a 03 hands 00 b1");
    assert_eq!(
        with("<init>", &made, Some(1), TaskPart::Hands(0)),
        "04 enter 2a <init> 2a 03 hands 00 04 leave b1 59 04 threw bf"
    );
}

/// A class with much in it: calls under a handler, locals of each kind, switches, a constructor, every kind of frame.
fn rich() -> Vec<u8> {
    let mut builder = Builder::new(61);
    let native = builder.member("Other", "native", "(IJ)[[Ljava/lang/String;").to_be_bytes();
    let init = builder.member("java/lang/Object", "<init>", "()V").to_be_bytes();
    let [new, _] = [builder.class("java/lang/Object"); 2].map(u16::to_be_bytes);
    let mut bytes = vec![0x04, 0x0a, opcode::INVOKESTATIC, native[0], native[1], 0x59, 0x03, 0x32, 0x4c, 0x57];
    bytes.extend([opcode::NEW, new[0], new[1], 0x59, opcode::INVOKESPECIAL, init[0], init[1], 0x57]);
    bytes.extend([0x03, opcode::LOOKUPSWITCH, 0, 0, 0, 25, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 25]);
    bytes.resize(44, 0);
    bytes.extend([0xc4, 0x84, 0, 1, 0, 1, opcode::GOTO, 0, 3, opcode::RETURN, 0x57, opcode::RETURN, 0, opcode::RETURN]);
    let frames = [0, 6, 44, 252, 0, 5, 1, 250, 0, 2, 64, 7, 0, 4, 247, 0, 0, 8, 0, 10, 255, 0, 0, 0, 1, 1, 0, 1, 4];
    let handlers = [Handler { start: 0, end: 10, handler: 54, class: 4 }];
    let attributes: &[(&str, &[u8])] =
        &[("StackMapTable", &frames), ("LineNumberTable", &[0, 1, 0, 0, 0, 1]), ("LocalVariableTable", &[0, 0])];
    builder.method(STATIC, "m", "()V", Some(Made { bytes: &bytes, handlers: &handlers, attributes }));
    let constructor = [opcode::ALOAD_0, opcode::INVOKESPECIAL, init[0], init[1], opcode::RETURN];
    builder.method(0, "<init>", "()V", Some(Made { bytes: &constructor, ..Made::default() }));
    builder.finish()
}

fn natives() -> Vec<NativeCall> {
    let [class, name, signature] = ["Other", "native", "(IJ)[[Ljava/lang/String;"].map(str::to_owned);
    vec![NativeCall { class, name, signature, number: 70_000 }]
}

/// Check that a call under a handler is told of also where the VM has kept no frames, as it does not verify the class: then there are none of ours either.
#[test]
fn without_frames() {
    let mut builder = Builder::new(55);
    let native = builder.member("Other", "native", "()V").to_be_bytes();
    // 0: iconst_0; 1: ifeq 4; 4: invokestatic; 7: return; 8: athrow
    let bytes = [0x03, 0x99, 0, 3, opcode::INVOKESTATIC, native[0], native[1], opcode::RETURN, opcode::ATHROW];
    let handlers = [Handler { start: 0, end: 7, handler: 8, class: 0 }];
    builder.method(STATIC, "m", "()V", Some(Made { bytes: &bytes, handlers: &handlers, ..Made::default() }));
    let [class, name, signature] = ["Other", "native", "()V"].map(str::to_owned);
    let native_calls = vec![NativeCall { class, name, signature, number: 2 }];
    let Enhanced { class_file, changed, untold, .. } =
        enhance(&builder.finish(), &[Wanted { native_calls, ..wanted("m", 1) }], &HOOKS).unwrap();
    assert_eq!((changed, untold), (1, Vec::new()));
    with_code(&class_file, |class, code| {
        assert_eq!(code.handlers.len(), 6, "{:?}", code.handlers);
        assert!(code.attributes.iter().all(|attribute| class.pool.utf8(attribute.name) != Some(b"StackMapTable")));
    });
}

/// Check that no broken class file makes it panic, and that whatever it makes is a class file.
#[test]
fn broken_files_break_nothing() {
    let good = rich();
    let wanted = ["m", "<init>"].map(|name| {
        // `m` has no object; what is made of it is a class file all the same.
        Wanted { native_calls: natives(), task: Some(TaskPart::Runs), ..wanted(name, 9) }
    });
    let Enhanced { changed, untold, .. } = enhance(&good, &wanted, &HOOKS).unwrap();
    assert_eq!((changed, untold), (2, Vec::new()));
    let mut random = 1_u64;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % limit
    };
    let (mut changed, mut refused) = (0, 0);
    for round in 0..30_000 {
        let mut file = good.clone();
        for _ in 0..1 + below(3) {
            let at = below(file.len());
            file[at] = [0, 1, 0x7f, 0x80, 0xff, file[at].wrapping_add(1), u8::try_from(below(256)).unwrap()][below(7)];
        }
        if round % 8 == 0 {
            file.truncate(below(file.len()));
        }
        if let Ok(enhanced) = enhance(&file, &wanted, &HOOKS) {
            changed += enhanced.changed;
            refused += enhanced.refused.len();
            assert!(ClassFile::parse(&enhanced.class_file).is_ok(), "{file:x?}");
        }
    }
    assert!(changed > 1_000 && refused > 1_000, "{changed} changed, {refused} refused");
}
