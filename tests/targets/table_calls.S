/*
 * What table.c puts in front of the JNI functions: each counts a call, and goes on to the function as if it had not been there. Of the
 * registers only one is used, in which no caller and no function expects anything.
 */
    .text
    .altmacro

.macro call number
    .p2align 4
call_\number:
    mov     table_counts(%rip), %r11
    lock incq 8 * \number(%r11)
    lea     table_originals(%rip), %r11
    jmp     *8 * \number(%r11)
.endm

.macro address number
    .quad   call_\number
.endm

    .set number, 0
    .rept 236
    call %number
    .set number, number + 1
    .endr

    .section .data.rel.ro, "aw"
    .globl  table_calls
    .hidden table_calls
    .p2align 3
table_calls:
    .set number, 0
    .rept 236
    address %number
    .set number, number + 1
    .endr

    .section .note.GNU-stack, "", @progbits
