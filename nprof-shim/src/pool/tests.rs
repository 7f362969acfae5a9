//! Stubs are called as the VM would call them: as functions, from many threads, in all modes and shardings.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nprof_common::histogram::bucket_of;

use super::*;
use crate::records::Records;

mod collecting;

// SAFETY: `stubs.s` defines it: nanoseconds in the first register, the bucket in the result.
unsafe extern "C" {
    safe fn nprof_stub_bucket(nanoseconds: u64) -> u32;
}

/// More than a machine for tests has.
const CPUS: u32 = 64;

type Add = extern "C" fn(u64, u64, u64, u64, u64, u64, f64, u64, u64, u64) -> u64;

/// The settings are the process's; tests that change them take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ten arguments of which three are on the stack.
extern "C" fn add(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: f64, h: u64, i: u64, j: u64) -> u64 {
    let integers = [a, b, c, d, e, f, h, i, j];
    integers.iter().fold(g.to_bits(), |hash, value| hash.wrapping_mul(31).wrapping_add(*value))
}

fn taken(function: usize, stack_words: u32, mode: Mode, records: &Records) -> Stub {
    let place = records.place(0).unwrap();
    let parameters = Parameters { original: function, stack_words, index: 0, place, mode, threshold_ns: u64::MAX };
    Stub::take(&parameters).unwrap()
}

fn as_add(address: usize) -> Add {
    // SAFETY: the stub stands before `add` and passes everything on.
    unsafe { std::mem::transmute::<usize, Add>(address) }
}

fn ended(stats: &MethodStats) -> u64 {
    stats.histogram.iter().sum()
}

/// Check that arguments and results pass unchanged and that calls are counted exactly, in all modes and shardings, by
/// both entries.
#[test]
fn calls_pass_through() {
    let _turn = turn();
    for sharding in Sharding::all() {
        for (mode, counted, timed) in
            [(Mode::Off, 0, 0), (Mode::Count, 2_000, 0), (Mode::Time, 0, 2_000), (Mode::one_of(1), 0, 2_000)]
        {
            let records = Records::map_for(1, CPUS).unwrap();
            configure(sharding, &Clock::estimate());
            let stub = taken(add as *const () as usize, 3, mode, &records);
            for round in 0..1_000 {
                for entry in [stub.entry(), stub.second_entry()] {
                    let through = as_add(entry)(round, 1, 2, 3, 4, 5, 6.5, 7, round << 40, 9);
                    assert_eq!(through, add(round, 1, 2, 3, 4, 5, 6.5, 7, round << 40, 9), "{sharding:?} {mode:?}");
                }
            }
            let sum = records.sum(0);
            assert_eq!((sum.counted, sum.entered, ended(&sum)), (counted, timed, timed), "{sharding:?} {mode:?}");
            assert!(sum.max_ns <= sum.total_ns);
        }
    }
}

/// Check that a floating-point result passes through a timed call, and that its time is in the right order.
#[test]
fn results_in_vector_registers() {
    extern "C" fn half_after_a_while(value: f64) -> f64 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        value / 2.0
    }
    let _turn = turn();
    let records = Records::map_for(1, CPUS).unwrap();
    configure(Sharding::best(), &Clock::estimate());
    let stub = taken(half_after_a_while as *const () as usize, 0, Mode::Time, &records);
    // SAFETY: the stub stands before the function and passes everything on.
    let through = unsafe { std::mem::transmute::<usize, extern "C" fn(f64) -> f64>(stub.entry()) };
    assert_eq!(through(5.0), 2.5);
    let sum = records.sum(0);
    assert!((1_900_000..2_000_000_000).contains(&sum.total_ns), "{} ns", sum.total_ns);
    assert_eq!(sum.max_ns, sum.total_ns);
    assert_eq!(sum.histogram[bucket_of(sum.total_ns) as usize], 1);
}

/// Check that a call with any number of arguments passes all of them on, in registers and on the stack, whether it is counted or timed, and
/// gives what the function gives.
#[test]
fn any_number_of_arguments() {
    type Print = unsafe extern "C" fn(*mut c_char, usize, *const c_char, ...) -> c_int;
    type PrintList = unsafe extern "C" fn(*mut c_char, usize, *const c_char, *mut c_void) -> c_int;

    unsafe extern "C" {
        fn vsnprintf(into: *mut c_char, size: usize, format: *const c_char, list: *mut c_void) -> c_int;
    }

    let _turn = turn();
    let (original, twin): (Print, PrintList) = (libc::snprintf, vsnprintf);
    for sharding in Sharding::all() {
        for (mode, is_timed) in [(Mode::Off, None), (Mode::Count, Some(false)), (Mode::Time, Some(true))] {
            let records = Records::map_for(1, CPUS).unwrap();
            configure(sharding, &Clock::estimate());
            let behind = Behind { original: original as usize, fixed: Some(3), twin: Some(twin as usize) };
            let stub = Stub::take_before(behind, (records.place(0).unwrap(), 0)).unwrap();
            stub.set_mode(mode);
            // SAFETY: the stub stands before the function and passes everything on.
            let through = unsafe { std::mem::transmute::<usize, Print>(stub.entry()) };
            for round in 0..1_000 {
                let (mut text, format) = ([0_u8; 256], c"%d %g %d %g %g %d %ld %g %g %g %g %g %d %g %g %s");
                let (into, half, long) = (text.as_mut_ptr().cast::<c_char>(), f64::from(round) / 2.0, 1_i64 << 40);
                // SAFETY: what the format says, and room for it.
                let length = unsafe {
                    through(
                        into,
                        256,
                        format.as_ptr(),
                        round,
                        half,
                        2,
                        3.0,
                        4.0,
                        5,
                        long,
                        7.0,
                        8.0,
                        9.5,
                        10.0,
                        11.0,
                        12,
                        13.0,
                        -14.0,
                        c"end".as_ptr(),
                    )
                };
                let expected = format!("{round} {half} 2 3 4 5 {long} 7 8 9.5 10 11 12 13 -14 end");
                assert_eq!(std::str::from_utf8(&text[..usize::try_from(length).unwrap()]), Ok(expected.as_str()));
            }
            let sum = records.sum(0);
            let calls = |wanted: bool| if is_timed == Some(wanted) { 1_000 } else { 0 };
            assert_eq!((sum.counted, sum.entered, ended(&sum)), (calls(false), calls(true), calls(true)), "{mode:?}");
        }
    }
}

/// Check that counts are exact with more threads than CPUs, also where a CPU has no shard of its own.
#[test]
fn counts_from_many_threads() {
    const THREADS: u64 = 4;
    const CALLS: u64 = 300_000;
    let _turn = turn();
    for cpus in [0, 1, 64] {
        for sharding in Sharding::all() {
            for (mode, expected) in [(Mode::Count, 0.0), (Mode::Time, 1.0), (Mode::one_of(16), 1.0 / 16.0)] {
                let records = Records::map_for(1, cpus).unwrap();
                configure(sharding, &Clock::estimate());
                let stub = taken(add as *const () as usize, 3, mode, &records);
                std::thread::scope(|scope| {
                    for _ in 0..THREADS {
                        scope.spawn(|| {
                            for call in 0..CALLS {
                                std::hint::black_box(as_add(stub.entry())(call, 1, 2, 3, 4, 5, 6.5, 7, 8, 9));
                            }
                        });
                    }
                });
                let sum = records.sum(0);
                let what = format!("{sharding:?} {mode:?} on {cpus} shards");
                assert_eq!(sum.counted + sum.entered, THREADS * CALLS, "{what}");
                assert_eq!(ended(&sum), sum.entered, "{what}");
                // Threads on several CPUs that share a shard may all time the call of one number.
                let tolerated = if cpus == 64 { 0.01 } else { expected };
                let timed = sum.entered as f64 / (THREADS * CALLS) as f64;
                assert!((timed - expected).abs() <= tolerated, "{what}: {timed} of the calls were timed");
            }
        }
    }
}

/// Check that the stubs' bucket is that of nprof-common at and around all powers of two, and at values between.
#[test]
fn buckets_agree() {
    let mut random = 1u64;
    let around = (0..64).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1]);
    for value in around.chain([u64::MAX]) {
        assert_eq!(nprof_stub_bucket(value), bucket_of(value), "of {value}");
    }
    for round in 0..1_000_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let value = random >> (round % 64);
        assert_eq!(nprof_stub_bucket(value), bucket_of(value), "of {value}");
    }
}

/// Check that a stub is found by its entries, and by nothing else.
#[test]
fn found_by_address() {
    let _turn = turn();
    let records = Records::map_for(1, CPUS).unwrap();
    let stub = taken(1, 0, Mode::Off, &records);
    assert_eq!((Stub::at(stub.entry()), Stub::at(stub.second_entry())), (Some(stub), Some(stub)));
    for address in [stub.entry() + 1, stub.entry() + 8, pool_address() + STUBS * STUB_SIZE, pool_address() - 64, 0] {
        assert_eq!(Stub::at(address), None);
    }
    assert_eq!(stub.original(), 1);
}

/// Check that each stub begins as the template says, reads its own row, and stays within its cache line.
#[test]
fn stubs_are_alike() {
    const HEAD: [u8; 16] = [0xf3, 0x0f, 0x1e, 0xfa, 0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0, 0, 0x4c, 0x8d, 0x1d];
    let table = (&raw const nprof_stub_table).addr();
    for number in [0, 1, 2, 100, STUBS - 1] {
        // SAFETY: the pool is initialised and never changes.
        let code = unsafe { nprof_stub_pool[number] };
        assert_eq!(code[..16], HEAD);
        let displacement = i32::from_le_bytes([code[16], code[17], code[18], code[19]]);
        let row = (pool_address() + number * STUB_SIZE + 20).wrapping_add_signed(displacement as isize);
        assert_eq!(row, table + number * size_of::<Row>());
        assert_eq!(code[STUB_SIZE - 1], 0xcc);
    }
}

/// Check that the site for slow calls is a nop of five bytes, and that calls pass it unharmed.
#[test]
fn slow_calls() {
    let _turn = turn();
    // SAFETY: code never changes.
    assert_eq!(unsafe { nprof_stub_chosen }, [0x0f, 0x1f, 0x44, 0, 0]);
    assert_eq!(chosen_site(), (&raw const nprof_stub_chosen).addr());
    let records = Records::map_for(1, CPUS).unwrap();
    configure(Sharding::best(), &Clock::estimate());
    let stub = taken(add as *const () as usize, 3, Mode::Time, &records);
    stub.set_threshold_ns(0);
    assert_eq!(as_add(stub.entry())(9, 8, 7, 6, 5, 4, 3.0, 2, 1, 0), add(9, 8, 7, 6, 5, 4, 3.0, 2, 1, 0));
    assert_eq!(ended(&records.sum(0)), 1);
}

/// Check that a timed call keeps what it is made with where the kernel's programs look for it, if that is wanted, and passes it on all
/// the same.
#[test]
fn keeps_arguments() {
    const WORDS: usize = size_of::<StubArgs>() / 8;
    type Kept = extern "C" fn(&mut [u64; WORDS], u64, u64, u64, u64, u64);

    /// Copies what the frame of its stub keeps to where its first argument leads.
    #[unsafe(naked)]
    extern "C" fn kept(into: &mut [u64; WORDS]) {
        std::arch::naked_asm!(
            "xor eax, eax",
            "2: mov rcx, [rbp + 8 * rax - {below}]",
            "mov [rdi + 8 * rax], rcx",
            "inc eax",
            "cmp eax, {words}",
            "jne 2b",
            "ret",
            below = const STUB_ARGS_BELOW,
            words = const WORDS,
        )
    }
    let _turn = turn();
    let records = Records::map_for(1, CPUS).unwrap();
    configure(Sharding::best(), &Clock::estimate());
    let stub = taken(kept as *const () as usize, 0, Mode::Time, &records);
    // SAFETY: the stub stands before the function and passes everything on.
    let through = unsafe { std::mem::transmute::<usize, Kept>(stub.entry()) };
    let mut found = [1; WORDS];
    for kinds in [0, 9, 0] {
        stub.set_kinds(kinds);
        through(&mut found, 12, 13, 14, 15, 16);
        assert_eq!(found[offset_of!(StubArgs, kinds) / 8], kinds);
        if kinds != 0 {
            let env = (&raw const found) as u64;
            assert_eq!((&found[..5], found[offset_of!(StubArgs, env) / 8]), (&[12, 13, 14, 15, 16][..], env));
        }
    }
    let stub = taken(add as *const () as usize, 3, Mode::Time, &records);
    stub.set_kinds(u64::MAX);
    assert_eq!(as_add(stub.entry())(9, 8, 7, 6, 5, 4, 3.0, 2, 1, 0), add(9, 8, 7, 6, 5, 4, 3.0, 2, 1, 0));
}

/// Check that a stack is unwound through a timed call, from the native to the caller.
#[test]
fn unwinds_through_a_timed_call() {
    extern "C" fn see(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, on_the_stack: u64) -> usize {
        let stack = std::backtrace::Backtrace::force_capture().to_string();
        let is_seen = ["nprof_stub_active", "unwinds_through_a_timed_call"].iter().all(|frame| stack.contains(frame));
        usize::from(is_seen) + usize::from([a, b, c, d, e, f, on_the_stack] == [1, 2, 3, 4, 5, 6, 7])
    }
    let _turn = turn();
    let records = Records::map_for(1, CPUS).unwrap();
    configure(Sharding::best(), &Clock::estimate());
    let stub = taken(see as *const () as usize, 1, Mode::Time, &records);
    // SAFETY: the stub stands before the function and passes everything on.
    let through = unsafe {
        std::mem::transmute::<usize, extern "C" fn(u64, u64, u64, u64, u64, u64, u64) -> usize>(stub.entry())
    };
    assert_eq!(through(1, 2, 3, 4, 5, 6, 7), 2);
}

/// Check that a call that is counted leaves its mark for the native, which is that of the native's address and of its stack
/// pointer when it is entered, with and without arguments on the stack; and that one that is not counted leaves none.
#[test]
fn marks() {
    // Stores r10 and the stack pointer.
    #[unsafe(naked)]
    extern "C" fn entered(registers: &mut [u64; 2]) {
        std::arch::naked_asm!("mov [rdi], r10", "mov [rdi + 8], rsp", "ret")
    }
    let _turn = turn();
    for sharding in Sharding::all() {
        for mode in [Mode::Off, Mode::Count, Mode::Time, Mode::one_of(2)] {
            let records = Records::map_for(1, CPUS).unwrap();
            configure(sharding, &Clock::estimate());
            let native = entered as *const () as usize;
            for stack_words in 0..3 {
                let stub = taken(native, stack_words, mode, &records);
                // SAFETY: the stub stands before the function.
                let through = unsafe { std::mem::transmute::<usize, extern "C" fn(&mut [u64; 2])>(stub.entry()) };
                for _ in 0..4 {
                    let mut registers = [0; 2];
                    through(&mut registers);
                    let [r10, sp] = registers;
                    let mark = if mode == Mode::Off { 0 } else { switch::mark(native as u64, sp) };
                    assert_eq!(r10, mark, "{sharding:?} {mode:?} {stack_words}");
                }
            }
        }
    }
}

/// Check that a call ends in the record in which it began, also if its stub has another by then, with another number
/// of shards.
#[test]
fn ends_where_it_began() {
    static MEANWHILE: Mutex<Option<(Stub, Place)>> = Mutex::new(None);
    extern "C" fn change_places() {
        if let Some((stub, place)) = MEANWHILE.lock().unwrap().take() {
            stub.set_place(place, 0, true);
        }
    }
    let _turn = turn();
    for sharding in Sharding::all() {
        configure(sharding, &Clock::estimate());
        let [before, after] = [2, 5].map(|cpus| Records::map_for(1, cpus).unwrap());
        let stub = taken(change_places as *const () as usize, 0, Mode::Time, &before);
        *MEANWHILE.lock().unwrap() = Some((stub, after.place(0).unwrap()));
        // SAFETY: the stub stands before the function.
        let through = unsafe { std::mem::transmute::<usize, extern "C" fn()>(stub.entry()) };
        through();
        let [old, new] = [before.sum(0), after.sum(0)];
        assert_eq!((old.entered, ended(&old), new), (1, 1, MethodStats::ZERO), "{sharding:?}");
        through();
        let [old, new] = [before.sum(0), after.sum(0)];
        assert_eq!((old.entered, new.entered, ended(&new)), (1, 1, 1), "{sharding:?}");
    }
}

/// Check that a call that is in flight when its run ends is recorded nowhere when it returns, neither where it began nor
/// where its stub records by then, and that its result is right; and that the next call is recorded.
#[test]
fn ends_nowhere_after_its_run() {
    static MEANWHILE: Mutex<Option<(Stub, Place)>> = Mutex::new(None);
    extern "C" fn next_run(value: u64) -> u64 {
        if let Some((stub, place)) = MEANWHILE.lock().unwrap().take() {
            end_run();
            stub.set_place(place, 0, true);
        }
        value + 1
    }
    let _turn = turn();
    for sharding in Sharding::all() {
        configure(sharding, &Clock::estimate());
        let [before, after] = [2, 2].map(|cpus| Records::map_for(1, cpus).unwrap());
        let stub = taken(next_run as *const () as usize, 0, Mode::Time, &before);
        *MEANWHILE.lock().unwrap() = Some((stub, after.place(0).unwrap()));
        // SAFETY: the stub stands before the function.
        let through = unsafe { std::mem::transmute::<usize, extern "C" fn(u64) -> u64>(stub.entry()) };
        assert_eq!(through(41), 42);
        assert_eq!(before.sum(0), MethodStats { entered: 1, ..MethodStats::ZERO }, "{sharding:?}");
        assert_eq!(after.sum(0), MethodStats::ZERO, "{sharding:?}");
        assert_eq!(through(1), 2);
        let sum = after.sum(0);
        assert_eq!((sum.entered, ended(&sum), before.sum(0).entered), (1, 1, 1), "{sharding:?}");
    }
}

/// Check that nothing is lost or ends twice while a stub's place goes back and forth between records with different
/// numbers of shards.
#[test]
fn places_change_under_load() {
    const THREADS: u64 = 3;
    const CALLS: u64 = 100_000;
    /// So many that each place surely has some of the calls that are timed.
    const CHANGES: usize = 100;
    let _turn = turn();
    for sharding in Sharding::all() {
        configure(sharding, &Clock::estimate());
        // Further records stand behind the used ones: what went there with the other's number of shards would be seen.
        let both = [1, 4].map(|cpus| Records::map_for(2, cpus).unwrap());
        let stub = taken(add as *const () as usize, 3, Mode::one_of(4), &both[0]);
        let (made, changes) = (AtomicU64::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let call = || {
                let mut call = 0;
                while call < CALLS || changes.load(Ordering::Relaxed) < CHANGES {
                    std::hint::black_box(as_add(stub.entry())(call, 1, 2, 3, 4, 5, 6.5, 7, 8, 9));
                    call += 1;
                    made.fetch_add(1, Ordering::Relaxed);
                }
            };
            let callers: Vec<_> = (0..THREADS).map(|_| scope.spawn(call)).collect();
            let are_done = || callers.iter().all(|caller| caller.is_finished());
            while !are_done() {
                let before = made.load(Ordering::Relaxed);
                stub.set_place(both[changes.fetch_add(1, Ordering::Relaxed) % 2].place(0).unwrap(), 0, true);
                // Each thread may end a call with the place before: of more calls, one is with this one.
                while made.load(Ordering::Relaxed) <= before + THREADS && !are_done() {
                    std::thread::yield_now();
                }
            }
        });
        let sums = both.map(|records| records.sum(0));
        assert_eq!(sums.iter().map(|sum| sum.counted + sum.entered).sum::<u64>(), made.into_inner(), "{sharding:?}");
        assert!(sums.iter().all(|sum| ended(sum) == sum.entered && sum.entered > 0), "{sharding:?}");
        assert!(both.iter().all(|records| records.sum(1) == MethodStats::ZERO), "{sharding:?}");
    }
}

/// Check that the chance of a mode is that of one call in as many.
#[test]
fn probabilities() {
    assert_eq!(Mode::one_of(2), Mode::Sample(1 << 31));
    assert_eq!(Mode::one_of(16), Mode::Sample(1 << 28));
    assert_eq!((Mode::one_of(0), Mode::one_of(1)), (Mode::Count, Mode::Time));
}
