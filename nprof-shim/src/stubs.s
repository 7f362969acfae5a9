// The pool of stubs and the code that they share. See pool.rs for what each stub is for.
//
// The entry of a stub finds the arguments of a native, or of a JNI function, where its caller put them, and leaves them there: until the native
// is called only rax, r10, r11 and the flags are touched, and xmm8 where counters of threads are kept. r11 holds the stub's row of
// parameters. A native whose call the stub has counted finds a mark in r10, which no native looks at: a probe of the kernel
// there then leaves the call out.
// A JNI function may take its arguments as `...` does: then al says that registers of vectors have some, and a stub that jumps to one says so
// of all eight, which is never wrong.
// The mark names the call, by the native's address and the stack pointer with which it is entered, because it may still be
// in r10 when the native calls another one, or itself. A call that is not counted finds zero.
//
// Where a stub records is one word, the address of the first shard and below it, in 16 bits, how many there are: the
// word is read once for each addition, so that both parts belong together also while they are changed. A timed call
// keeps the word in its frame, and ends in the record in which it began. It also keeps the number of the run: when that is
// over, the addresses are those of other records, or soon will be, and the call ends nowhere.
//
// A sum is kept per CPU. Where the C library has registered its threads for restartable sequences, an addition is one:
// the kernel lets it run to its last instruction, the store, without a change of CPU or of thread in between, or leads
// it to its `otherwise`. So the store needs no lock. What was interrupted, and what finds a CPU number that there is no
// shard for (also: a thread that is not registered, -1), goes with a lock to the spare shard behind the last, which no
// unlocked addition ever touches. There is no loop that could go on for ever.
//
// What is counted, and not timed, is not in the record: the row has a word of the same kind for the method's counts, which are next to
// those of the others. No call needs both words at a time: it is either counted or timed.

// Begins a restartable sequence: \rseq holds the offset of the thread's area. Leaves the number of this CPU in eax.
.macro nprof_begin name, rseq
    lea rax, [rip + .Lnprof_section_\name]
    mov qword ptr fs:[\rseq + 8], rax
.Lnprof_begin_\name:
    mov eax, dword ptr fs:[\rseq + 4]
.endm

// From this CPU's number in rax and the word of the record in r10 to this CPU's shard in rax.
.macro nprof_shard otherwise
    cmp ax, r10w
    jae \otherwise
    imul rax, rax, {RECORD_SIZE} << {SHARD_BITS}
    add rax, r10
    shr rax, {SHARD_BITS}
.endm

// The same with the word of the counts in r10, which it clobbers.
.macro nprof_counts otherwise
    cmp ax, r10w
    jae \otherwise
    nprof_add_counts
.endm

.macro nprof_add_counts
    shl rax, {COUNTS_SHIFT}
    shr r10, {SHARD_BITS}
    add rax, r10
.endm

// From the word of the record in r10 to the shard for locked additions in rax.
.macro nprof_locked_shard
    call nprof_stub_locked_cpu
    imul rax, rax, {RECORD_SIZE} << {SHARD_BITS}
    add rax, r10
    shr rax, {SHARD_BITS}
.endm

// The same with the word of the counts in r10, which it clobbers.
.macro nprof_locked_counts
    call nprof_stub_locked_cpu
    nprof_add_counts
.endm

// Stands behind the store that ends the sequence, and describes it to the kernel: version, flags, first instruction,
// length, where to go instead.
.macro nprof_end name
.Lnprof_end_\name:
    .pushsection .data.rel.ro.nprof_stubs, "aw", @progbits
    .p2align 5
.Lnprof_section_\name:
    .long 0, 0
    .quad .Lnprof_begin_\name, .Lnprof_end_\name - .Lnprof_begin_\name, .Lnprof_abort_\name
    .popsection
.endm

// Says that the thread is in no sequence. Else the kernel finds out at the next switch of threads, from the description, and says so itself,
// which takes it more than this store: a native that waits is switched from. \rseq holds the offset of the thread's area.
.macro nprof_in_none rseq
    mov qword ptr fs:[\rseq + 8], 0
.endm

// Where the kernel goes instead. It insists on the signature in front, which is the C library's.
.macro nprof_abort name, otherwise
    .byte 0x0f, 0xb9, 0x3d
    .long 0x53053053
.Lnprof_abort_\name:
    jmp \otherwise
.endm

// Goes to \otherwise if the run in which the call began is over. Clobbers rcx.
.macro nprof_unless_over otherwise
    mov rcx, qword ptr [rip + nprof_stub_settings + {RUN}]
    cmp rcx, qword ptr [rbp - 32]
    jne \otherwise
.endm

// Keeps the number of the run where the frame will have it, before the word of the record is read: with a word of the next
// run's record the call would have too early a number, and end nowhere. Clobbers rax.
.macro nprof_keep_run
    mov rax, qword ptr [rip + nprof_stub_settings + {RUN}]
    mov qword ptr [rsp - 40], rax
.endm

// Jumps to the native, which is entered with the stack pointer as it is now, with the mark of that call.
.macro nprof_jump_marked
    mov r10, qword ptr [r11 + {MARK}]
    xor r10, rsp
    mov eax, 8
    jmp qword ptr [r11 + {ORIGINAL}]
.endm

// Goes to \timed with the call, the n-th of the counts in rax, if n times the golden ratio, modulo one, is below the chance:
// as often as that, evenly, and out of step with any pattern in the calls. Clobbers r10.
.macro nprof_if_chosen timed
    mov r10, qword ptr [rax + {COUNTED}]
    add r10, qword ptr [rax + {CHOSEN}]
    imul r10d, r10d, {GOLDEN}
    cmp r10d, dword ptr [r11 + {CHANCE}]
    jb \timed
.endm

// The bucket of rdi (nanoseconds) into rdx, as nprof-common/src/histogram.rs defines it. Clobbers rcx and rdi.
.macro nprof_bucket
    mov rcx, qword ptr [rip + nprof_stub_bounds + 32]
    cmp rdi, rcx
    cmova rdi, rcx
    mov ecx, 1
    test rdi, rdi
    cmove rdi, rcx
    bsr rdx, rdi
    mov ecx, 62
    sub ecx, edx
    shl rdi, cl
    shl edx, 2
    cmp qword ptr [rip + nprof_stub_bounds], rdi
    adc edx, 0
    cmp qword ptr [rip + nprof_stub_bounds + 8], rdi
    adc edx, 0
    cmp qword ptr [rip + nprof_stub_bounds + 16], rdi
    adc edx, 0
    cmp qword ptr [rip + nprof_stub_bounds + 24], rdi
    adc edx, 0
.endm

// What a call took, from its row of parameters, the word of its record and its start in the frame: nanoseconds into rsi, the
// row into r11, the word into r10, the result of the native, which was in rax, into r8. Clobbers rax, rcx and rdx.
.macro nprof_elapsed
    mov r8, rax
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov r11, qword ptr [rbp - 8]
    mov r10, qword ptr [rbp - 24]
    xor ecx, ecx
    sub rax, qword ptr [rbp - 16]
    cmovb rax, rcx
    mul qword ptr [rip + nprof_stub_settings + {MULTIPLIER}]
    shrd rax, rdx, 32
    mov rsi, rax
.endm

// Keeps when the call begins. Clobbers rax and r10.
.macro nprof_begin_time
    mov r10, rdx
    rdtsc
    shl rdx, 32
    or rax, rdx
    add rax, qword ptr [rip + nprof_stub_settings + {FLOOR}]
    mov qword ptr [rbp - 16], rax
    mov rdx, r10
.endm

// What the function takes as `...` does, as a `va_list` for its twin, in r8 if four arguments come before that, in rcx if three do: r10d
// is how many bytes these are. What is on the caller's stack stays there, however much it is.
.macro nprof_list_arguments
    sub rsp, {LISTED}
    mov qword ptr [rsp + {SAVED} + 16], rdx
    mov qword ptr [rsp + {SAVED} + 24], rcx
    mov qword ptr [rsp + {SAVED} + 32], r8
    mov qword ptr [rsp + {SAVED} + 40], r9
    movups xmmword ptr [rsp + {SAVED} + 48], xmm0
    movups xmmword ptr [rsp + {SAVED} + 64], xmm1
    movups xmmword ptr [rsp + {SAVED} + 80], xmm2
    movups xmmword ptr [rsp + {SAVED} + 96], xmm3
    movups xmmword ptr [rsp + {SAVED} + 112], xmm4
    movups xmmword ptr [rsp + {SAVED} + 128], xmm5
    movups xmmword ptr [rsp + {SAVED} + 144], xmm6
    movups xmmword ptr [rsp + {SAVED} + 160], xmm7
    mov dword ptr [rsp], r10d
    mov dword ptr [rsp + 4], 48
    lea rax, [rbp + 16]
    mov qword ptr [rsp + 8], rax
    lea rax, [rsp + {SAVED}]
    mov qword ptr [rsp + 16], rax
    cmp r10d, 32
    cmove r8, rsp
    cmovb rcx, rsp
.endm

// Calls the native, with a copy of its arguments on the stack, and keeps when. r11 is the row of parameters.
.macro nprof_call_native
    mov r10d, dword ptr [r11 + {WORDS}]
    test r10d, r10d
    jz .Lnprof_copied\@
    js .Lnprof_variadic\@
    lea eax, [r10 + 1]
    and eax, -2
    shl eax, 3
    sub rsp, rax
.Lnprof_copy\@:
    dec r10d
    mov rax, qword ptr [rbp + 16 + 8 * r10]
    mov qword ptr [rsp + 8 * r10], rax
    jnz .Lnprof_copy\@
.Lnprof_copied\@:
    nprof_begin_time
    lea r10, [rsp - 8]
    xor r10, qword ptr [r11 + {MARK}]
    call qword ptr [r11 + {ORIGINAL}]
    jmp .Lnprof_called\@
.Lnprof_variadic\@:
    and r10d, 0x7fffffff
    nprof_list_arguments
    lea rax, [rip + nprof_stub_table]
    sub r11, rax
    lea rax, [rip + nprof_stub_twins]
    shr r11, {TWIN_SHIFT}
    mov r11, qword ptr [rax + r11]
    nprof_begin_time
    xor r10d, r10d
    call r11
.Lnprof_called\@:
.endm

// Goes to \found with the thread's row in r10, if there is one among the rows that the word in r10 says: their address and, below
// a page, the number of their buckets less one. Clobbers rax and r11.
.macro nprof_find_row found
    mov rax, qword ptr fs:[0]
    imul r11, rax, {ROW_MULTIPLIER}
    shr r11, {ROW_SHIFT}
    and r11d, r10d
    and r11d, {ROW_BUCKETS} - 1
    imul r11d, r11d, {ROW_BUCKET_SIZE}
    and r10, -{PAGE}
    add r10, r11
    .rept {BUCKET_ROWS}
    cmp qword ptr [r10], rax
    je \found
    add r10, {THREAD_ROW}
    .endr
.endm

// From the thread's row in r10 to what its calls have nested in them, in r11: as far from the first such as the row is from the first,
// by the word of the rows in the frame. Clobbers rax.
.macro nprof_nested_of_row
    mov rax, qword ptr [rsp + {ROWS_AT_ENTRY}]
    and rax, -{PAGE}
    lea r11, [rip + nprof_stub_nested]
    add r11, r10
    sub r11, rax
.endm

// Copies what a thread has used, or the like of it, by way of a register that no argument is in.
.macro nprof_copy_used to, from
    .set .Lnprof_at, 0
    .rept {USED} / 16
    movups xmm8, xmmword ptr [\from + .Lnprof_at]
    movups xmmword ptr [\to + .Lnprof_at], xmm8
    .set .Lnprof_at, .Lnprof_at + 16
    .endr
.endm

    .section .rodata.nprof_stubs, "a", @progbits
    .p2align 6
nprof_stub_bounds:
    .quad {QUARTER0}, {QUARTER1}, {QUARTER2}, {QUARTER3}, {LARGEST}
    .p2align 4
nprof_stub_nothing:
    .zero {USED}

    .section .bss.nprof_stubs, "aw", @nobits
    .p2align 6
    .globl nprof_stub_settings
    .hidden nprof_stub_settings
    .type nprof_stub_settings, @object
    .size nprof_stub_settings, {SETTINGS_SIZE}
nprof_stub_settings:
    .zero {SETTINGS_SIZE}
    .globl nprof_stub_table
    .hidden nprof_stub_table
    .type nprof_stub_table, @object
    .size nprof_stub_table, {ROW_SIZE} * {STUBS}
nprof_stub_table:
    .zero {ROW_SIZE} * {STUBS}
// The function that timed calls are made by instead of the one in the row, with a list of the arguments.
    .globl nprof_stub_twins
    .hidden nprof_stub_twins
    .type nprof_stub_twins, @object
    .size nprof_stub_twins, 8 * {STUBS}
nprof_stub_twins:
    .zero 8 * {STUBS}
    .p2align 7
    .globl nprof_stub_nested
    .hidden nprof_stub_nested
    .type nprof_stub_nested, @object
    .size nprof_stub_nested, {THREAD_ROW} * {THREAD_ROWS}
nprof_stub_nested:
    .zero {THREAD_ROW} * {THREAD_ROWS}

    .section .text.nprof_stubs, "ax", @progbits

// The stubs, a cache line each. Two entries, so that a method can be bound again to the same stub at another address;
// then a nop of five bytes, on which a cheap uprobe can sit.
    .p2align 6
    .globl nprof_stub_pool
    .hidden nprof_stub_pool
    .type nprof_stub_pool, @function
nprof_stub_pool:
    .cfi_startproc
    .set .Lnprof_number, 0
    .rept {STUBS}
    endbr64
    endbr64
    .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
    lea r11, [rip + nprof_stub_table + .Lnprof_number * {ROW_SIZE}]
    xor r10d, r10d
    cmp dword ptr [r11 + {MODE}], {OFF}
    jne nprof_stub_active
    jmp qword ptr [r11 + {ORIGINAL}]
    .p2align 6, 0xcc
    .set .Lnprof_number, .Lnprof_number + 1
    .endr
    .cfi_endproc
    .size nprof_stub_pool, . - nprof_stub_pool

// What a stub does that is not off.
    .p2align 6
    .type nprof_stub_active, @function
nprof_stub_active:
    .cfi_startproc
    cmp dword ptr [r11 + {MODE}], {TIME}
    je .Lnprof_time
// Counting alone is to time with a chance of nothing: one way for both, as short as it can be. Between two calls of a program that does
// something else it leaves the caches, and what a CPU remembers of its jumps is forgotten.
    cmp dword ptr [rip + nprof_stub_settings + {SHARDING}], {RSEQ}
    jne .Lnprof_count_locked
    mov r10, qword ptr [rip + nprof_stub_settings + {RSEQ_OFFSET}]
    nprof_begin count, r10
    mov r10, qword ptr [r11 + {ROW_COUNTS}]
    nprof_counts .Lnprof_count_locked
    nprof_if_chosen .Lnprof_chosen_by_chance
    inc qword ptr [rax + {COUNTED}]
    nprof_end count
    mov r10, qword ptr [rip + nprof_stub_settings + {RSEQ_OFFSET}]
    nprof_in_none r10
    nprof_jump_marked

.Lnprof_count_locked:
    mov r10, qword ptr [r11 + {ROW_COUNTS}]
    nprof_locked_counts
    nprof_if_chosen .Lnprof_chosen_by_chance
    lock inc qword ptr [rax + {COUNTED}]
    nprof_jump_marked

    nprof_abort count, .Lnprof_count_locked
    nprof_abort enter, .Lnprof_time_locked

.Lnprof_time_locked:
    nprof_keep_run
    mov r10, qword ptr [r11 + {RECORDS}]
    nprof_locked_shard
    lock inc qword ptr [rax + {ENTERED}]
    jmp .Lnprof_call

// If another thread of the CPU adds at the same time one of the two is lost, which only has the chance come round a call later.
.Lnprof_chosen_by_chance:
    inc qword ptr [rax + {CHOSEN}]
.Lnprof_time:
    nprof_keep_run
    cmp dword ptr [rip + nprof_stub_settings + {SHARDING}], {RSEQ}
    jne .Lnprof_time_locked
    mov r10, qword ptr [rip + nprof_stub_settings + {RSEQ_OFFSET}]
    nprof_begin enter, r10
    mov r10, qword ptr [r11 + {RECORDS}]
    nprof_shard .Lnprof_time_locked
    inc qword ptr [rax + {ENTERED}]
    nprof_end enter
    mov rax, qword ptr [rip + nprof_stub_settings + {RSEQ_OFFSET}]
    nprof_in_none rax

// A real frame and a real call: unwinders, exceptions and longjmp find nothing unusual. r10 holds the word of the record.
.Lnprof_call:
    push rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    mov rbp, rsp
    .cfi_def_cfa_register rbp
    sub rsp, {FRAME}
    mov qword ptr [rbp - 8], r11
    mov qword ptr [rbp - 24], r10
    mov rax, qword ptr [r11 + {KINDS}]
    mov qword ptr [rbp - {FRAME} + {ARGS_KINDS}], rax
    test rax, rax
    jnz .Lnprof_keep_args
.Lnprof_args_kept:
    cmp qword ptr [rip + nprof_stub_settings + {ROWS}], 0
    jne .Lnprof_collect
.Lnprof_plain:
    nprof_call_native
// The result is in rax (kept in r8) or in xmm0 (not touched). All other registers that a callee may use are free.
    nprof_elapsed
.Lnprof_ended:
    mov rdi, rsi
    nprof_bucket
    cmp dword ptr [rip + nprof_stub_settings + {SHARDING}], {RSEQ}
    jne .Lnprof_end_locked
    mov r9, qword ptr [rip + nprof_stub_settings + {RSEQ_OFFSET}]
    nprof_begin total, r9
    nprof_unless_over .Lnprof_return
    nprof_shard .Lnprof_total_locked
    add qword ptr [rax + {TOTAL}], rsi
    nprof_end total
.Lnprof_histogram:
    nprof_begin histogram, r9
    nprof_unless_over .Lnprof_return
    nprof_shard .Lnprof_histogram_locked
    cmp rsi, qword ptr [rax + {MAX}]
    ja .Lnprof_max
    inc qword ptr [rax + 8 * rdx + {HISTOGRAM}]
    nprof_end histogram
    nprof_in_none r9
.Lnprof_recorded:
    cmp rsi, qword ptr [r11 + {THRESHOLD}]
    jae .Lnprof_long
.Lnprof_return:
    mov rax, r8
    .cfi_remember_state
    leave
    .cfi_def_cfa rsp, 8
    ret
    .cfi_restore_state

// What the call is made with is kept, for whoever looks at it when it has ended: the native may use the registers for other things.
// What it finds on the stack is a copy.
.Lnprof_keep_args:
    mov qword ptr [rbp - {FRAME}], rsi
    mov qword ptr [rbp - {FRAME} + 8], rdx
    mov qword ptr [rbp - {FRAME} + 16], rcx
    mov qword ptr [rbp - {FRAME} + 24], r8
    mov qword ptr [rbp - {FRAME} + 32], r9
    mov qword ptr [rbp - {FRAME} + {ARGS_ENV}], rdi
    jmp .Lnprof_args_kept

// A call that is long enough to be of interest, of the record in rax. Where all are, each has a chance of its own, of 2^32: one
// that the record says, and one for each nanosecond. The sum of times, times the golden ratio, modulo one, decides: it is as
// even as the chance, and knows of no pattern in the calls.
.Lnprof_long:
    mov edx, 1
    shl rdx, 32
    cmp qword ptr [r11 + {THRESHOLD}], 0
    jne .Lnprof_chosen
    mov rdx, qword ptr [rax + {PER_NS}]
    imul rdx, rsi
    add rdx, qword ptr [rax + {PER_CALL}]
    imul ecx, dword ptr [rax + {TOTAL}], {GOLDEN}
    cmp rcx, rdx
    jae .Lnprof_return
// Where not all calls are timed, this one was by another chance first.
    cmp dword ptr [r11 + {MODE}], {SAMPLE}
    jne .Lnprof_chosen
    mov ecx, 1
    shl rcx, 32
    cmp rdx, rcx
    cmova rdx, rcx
    mov ecx, dword ptr [r11 + {CHANCE}]
    imul rdx, rcx
    shr rdx, 32
// A probe finds the index in edi, with a mark if nobody has asked for the method, the nanoseconds in rsi and the chance in rdx; the nanoseconds of the calls that were nested in
// this one in rcx, and those of its own in which the thread did not run in r9; what the native has returned in r8; and in r10 where it
// stands what the thread has used meanwhile, 0 if that is not known. The stack pointer tells whether the frame has a `Call`.
.Lnprof_chosen:
    mov edi, dword ptr [r11 + {INDEX}]
    mov eax, dword ptr [r11 + {WORDS}]
    mov ecx, {LISTED} / 8
    test eax, eax
    cmovs eax, ecx
    inc eax
    and eax, -2
    lea rax, [rsp + 8 * rax + {FRAME}]
    xor ecx, ecx
    xor r9d, r9d
    xor r10d, r10d
    cmp rax, rbp
    je nprof_stub_chosen
    lea r10, [rip + nprof_stub_nothing]
    cmp qword ptr [rbp - {FRAME} - {CALL} + {IS_COLLECTED}], 0
    je nprof_stub_chosen
    lea r10, [rbp - {FRAME} - {CALL} + {AT_ENTRY}]
    mov rcx, qword ptr [rbp - {FRAME} - {CALL} + {BEFORE_NS}]
    mov r9, qword ptr [rbp - {FRAME} - {CALL} + {BEFORE_OFF}]
    .globl nprof_stub_chosen
    .hidden nprof_stub_chosen
    .type nprof_stub_chosen, @function
nprof_stub_chosen:
    .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
    jmp .Lnprof_return

// A new maximum, rarely.
.Lnprof_max:
    nprof_begin max, r9
    nprof_unless_over .Lnprof_return
    nprof_shard .Lnprof_histogram_locked
    cmp rsi, qword ptr [rax + {MAX}]
    jbe .Lnprof_histogram
    mov qword ptr [rax + {MAX}], rsi
    nprof_end max
    jmp .Lnprof_histogram

    nprof_abort total, .Lnprof_total_locked
    nprof_abort histogram, .Lnprof_histogram_locked
    nprof_abort max, .Lnprof_histogram_locked

.Lnprof_total_locked:
    nprof_unless_over .Lnprof_return
    nprof_locked_shard
    lock add qword ptr [rax + {TOTAL}], rsi
    jmp .Lnprof_histogram

.Lnprof_end_locked:
    nprof_unless_over .Lnprof_return
    nprof_locked_shard
    lock add qword ptr [rax + {TOTAL}], rsi
.Lnprof_histogram_locked:
    nprof_unless_over .Lnprof_return
    nprof_locked_shard
    lock inc qword ptr [rax + 8 * rdx + {HISTOGRAM}]
    mov rdi, rax
    mov rax, qword ptr [rdi + {MAX}]
.Lnprof_max_locked:
    cmp rsi, rax
    jbe .Lnprof_recorded_locked
    lock cmpxchg qword ptr [rdi + {MAX}], rsi
    jne .Lnprof_max_locked
.Lnprof_recorded_locked:
    mov rax, rdi
    jmp .Lnprof_recorded
// A call of which it is collected what its thread used meanwhile: the frame has a `Call` more (collected.rs). Its first
// bytes are written before the row is read, and the last are next to what was pushed: the frame's own page fault, if it
// has one, is not the call's.
.Lnprof_collect:
    sub rsp, {CALL}
    mov r10, qword ptr [rip + nprof_stub_settings + {ROWS}]
    mov qword ptr [rsp + {ROWS_AT_ENTRY}], r10
    test r10, r10
    jz .Lnprof_no_row
    nprof_find_row .Lnprof_row
    call nprof_stub_ask
    mov r10, qword ptr [rsp + {ROWS_AT_ENTRY}]
    nprof_find_row .Lnprof_row
.Lnprof_no_row:
    mov r11, qword ptr [rbp - 8]
    add rsp, {CALL}
    jmp .Lnprof_plain
// r10 is the thread's row. It says that the thread is not running if the kernel has not told that it runs again.
.Lnprof_row:
    cmp qword ptr [r10 + {ROW_SINCE}], 0
    jne .Lnprof_unseen
.Lnprof_seen:
    nprof_nested_of_row
    mov qword ptr [rsp + {ROW}], r10
    mov qword ptr [rsp + {NESTED}], r11
    mov rax, qword ptr [r11 + {NESTED_NS}]
    mov qword ptr [rsp + {BEFORE_NS}], rax
    mov qword ptr [rsp + {IS_COLLECTED}], 0
// Without counters there is nothing in the row but a time, and only that is kept: the rest would take ten cache lines more.
    mov rax, qword ptr [rip + nprof_stub_settings + {CONSUMED}]
    mov qword ptr [rsp + {COUNTS}], rax
    test rax, rax
    jnz .Lnprof_keep_counters
    mov rax, qword ptr [r10 + {ROW_USED} + {OFF_NS}]
    mov qword ptr [rsp + {AT_ENTRY} + {OFF_NS}], rax
    mov rax, qword ptr [r11 + {NESTED_USED} + {OFF_NS}]
    mov qword ptr [rsp + {BEFORE} + {OFF_NS}], rax
.Lnprof_begun:
    mov r11, qword ptr [rbp - 8]
    nprof_call_native
    nprof_elapsed
    lea rdi, [rbp - {FRAME} - {CALL}]
    nprof_unless_over .Lnprof_return
    mov r9, qword ptr [rdi + {NESTED}]
    mov rax, qword ptr [rdi + {ROW}]
// Nothing was used, by it or by what it called, and nothing traced was called: only the time goes to whoever called it.
    mov rcx, qword ptr [r9 + {NESTED_NS}]
    sub rcx, qword ptr [rdi + {BEFORE_NS}]
    or rcx, qword ptr [rax + {ROW_SINCE}]
    jnz .Lnprof_used
    cmp qword ptr [rdi + {COUNTS}], 0
    jne .Lnprof_compare_counters
    mov rcx, qword ptr [rax + {ROW_USED} + {OFF_NS}]
    cmp rcx, qword ptr [rdi + {AT_ENTRY} + {OFF_NS}]
    jne .Lnprof_used
.Lnprof_unused:
    mov rcx, qword ptr [rdi + {BEFORE_NS}]
    add rcx, rsi
    mov qword ptr [r9 + {NESTED_NS}], rcx
    jmp .Lnprof_ended

.Lnprof_unseen:
    call nprof_stub_ask
    jmp .Lnprof_seen

.Lnprof_keep_counters:
    nprof_copy_used "rsp + {AT_ENTRY}", "r10 + {ROW_USED}"
    nprof_copy_used "rsp + {BEFORE}", "r11 + {NESTED_USED}"
    jmp .Lnprof_begun

.Lnprof_compare_counters:
    pcmpeqb xmm1, xmm1
    .set .Lnprof_at, 0
    .rept {USED} / 16
    movups xmm2, xmmword ptr [rax + {ROW_USED} + .Lnprof_at]
    movups xmm3, xmmword ptr [rdi + {AT_ENTRY} + .Lnprof_at]
    pcmpeqb xmm2, xmm3
    pand xmm1, xmm2
    .set .Lnprof_at, .Lnprof_at + 16
    .endr
    pmovmskb ecx, xmm1
    cmp ecx, 0xffff
    jne .Lnprof_used
    jmp .Lnprof_unused

// Something was used: that is added by a function, which leaves all to us that is needed afterwards.
.Lnprof_used:
    cmp dword ptr [rip + nprof_stub_settings + {SHARDING}], {RSEQ}
    jne .Lnprof_used_locked
    mov rax, qword ptr [rip + nprof_stub_settings + {RSEQ_OFFSET}]
    mov eax, dword ptr fs:[rax + 4]
    nprof_shard .Lnprof_used_locked
    jmp .Lnprof_used_shard
.Lnprof_used_locked:
    nprof_locked_shard
.Lnprof_used_shard:
    sub rsp, 48
    and rsp, -16
    mov qword ptr [rsp], rsi
    mov qword ptr [rsp + 8], r8
    movups xmmword ptr [rsp + 16], xmm0
    mov rdx, rsi
    mov rsi, rax
    call {COLLECTED}
    mov rsi, qword ptr [rsp]
    mov r8, qword ptr [rsp + 8]
    movups xmm0, xmmword ptr [rsp + 16]
    mov r11, qword ptr [rbp - 8]
    mov r10, qword ptr [rbp - 24]
    jmp .Lnprof_ended
    .cfi_endproc
    .size nprof_stub_active, . - nprof_stub_active

// Asks for a row for the thread, or to put right what it says. Clobbers nothing but rax.
    .p2align 4
    .globl nprof_stub_ask
    .hidden nprof_stub_ask
    .type nprof_stub_ask, @function
nprof_stub_ask:
    .cfi_startproc
    mov rax, qword ptr fs:[0]
// A probe here gives the thread with the control block at rax a row.
    .globl nprof_stub_rowless
    .hidden nprof_stub_rowless
    .type nprof_stub_rowless, @function
nprof_stub_rowless:
    .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
    ret
    .cfi_endproc
    .size nprof_stub_ask, . - nprof_stub_ask

// From the word of a record or of counts in r10 to the number of the shard for locked additions in rax: this CPU's, or the spare one if
// restartable sequences are in use, where the CPUs' own are for unlocked additions only. Clobbers nothing but rax and flags.
    .p2align 4
    .type nprof_stub_locked_cpu, @function
nprof_stub_locked_cpu:
    .cfi_startproc
    cmp dword ptr [rip + nprof_stub_settings + {SHARDING}], {RDPID}
    jb .Lnprof_spare
    je .Lnprof_rdpid
    mov eax, {CPU_SEGMENT}
    lsl eax, eax
    jz .Lnprof_cpu
.Lnprof_spare:
    movzx eax, r10w
    ret
.Lnprof_rdpid:
    rdpid rax
.Lnprof_cpu:
    and eax, {CPU_MASK}
    cmp ax, r10w
    jae .Lnprof_spare
    ret
    .cfi_endproc
    .size nprof_stub_locked_cpu, . - nprof_stub_locked_cpu

// The bucket of a value, as a function: for tests only.
    .p2align 4
    .globl nprof_stub_bucket
    .hidden nprof_stub_bucket
    .type nprof_stub_bucket, @function
nprof_stub_bucket:
    .cfi_startproc
    nprof_bucket
    mov eax, edx
    ret
    .cfi_endproc
    .size nprof_stub_bucket, . - nprof_stub_bucket

    .text
