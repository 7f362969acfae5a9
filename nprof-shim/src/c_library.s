// Functions of the C library by the names under which old versions of it have them too. See c_library.rs.

// The function as it was before it got a newer version.
.macro nprof_older name, version
    .symver nprof_older_\name, \name@\version
    .globl __wrap_\name
    .hidden __wrap_\name
    .type __wrap_\name, @function
__wrap_\name:
    .cfi_startproc
    jmp qword ptr [rip + nprof_older_\name@GOTPCREL]
    .cfi_endproc
    .size __wrap_\name, . - __wrap_\name
.endm

// A system call with up to five arguments, for a function that was only added later.
.macro nprof_call name, number
    .globl __wrap_\name
    .hidden __wrap_\name
    .type __wrap_\name, @function
__wrap_\name:
    .cfi_startproc
    mov r9, r8
    mov r8, rcx
    mov rcx, rdx
    mov rdx, rsi
    mov rsi, rdi
    mov edi, \number
    jmp qword ptr [rip + syscall@GOTPCREL]
    .cfi_endproc
    .size __wrap_\name, . - __wrap_\name
.endm

// A function that is written here.
.macro nprof_own name, function
    .globl __wrap_\name
    .hidden __wrap_\name
    .type __wrap_\name, @function
__wrap_\name:
    .cfi_startproc
    jmp \function
    .cfi_endproc
    .size __wrap_\name, . - __wrap_\name
.endm

    .pushsection .text.nprof_c_library, "ax", @progbits
    nprof_older dladdr, GLIBC_2.2.5
    nprof_older dlopen, GLIBC_2.2.5
    nprof_older dlsym, GLIBC_2.2.5
    nprof_older pthread_attr_getguardsize, GLIBC_2.2.5
    nprof_older pthread_attr_getstack, GLIBC_2.2.5
    nprof_older pthread_attr_setstacksize, GLIBC_2.2.5
    nprof_older pthread_create, GLIBC_2.2.5
    nprof_older pthread_detach, GLIBC_2.2.5
    nprof_older pthread_getattr_np, GLIBC_2.2.5
    nprof_older pthread_getspecific, GLIBC_2.2.5
    nprof_older pthread_join, GLIBC_2.2.5
    nprof_older pthread_key_create, GLIBC_2.2.5
    nprof_older pthread_key_delete, GLIBC_2.2.5
    nprof_older pthread_once, GLIBC_2.2.5
    nprof_older pthread_setname_np, GLIBC_2.12
    nprof_older pthread_setspecific, GLIBC_2.2.5
    nprof_older pthread_sigmask, GLIBC_2.2.5
    nprof_call stat64, {STAT}
    nprof_call fstat64, {FSTAT}
    nprof_call lstat64, {LSTAT}
    nprof_call gettid, {GETTID}
    nprof_call statx, {STATX}
    nprof_own __pthread_key_create, __wrap_pthread_key_create
    nprof_own __tls_get_addr, {TLS_ADDRESS}
    nprof_own _dl_find_object, {FIND_OBJECT}
    .popsection
