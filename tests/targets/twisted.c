/* A function that other processes use too, a native that is bound into the middle of it, and one that never returns. */
#include <jni.h>
#include <unistd.h>

/* Its operand is code as well: four one-byte nops, and then the return. */
__asm__(".text\n"
        ".balign 16\n"
        ".globl shared_value\n"
        ".type shared_value, @function\n"
        "shared_value:\n"
        ".cfi_startproc\n"
        "mov $0x90909090, %eax\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size shared_value, . - shared_value\n");

extern char shared_value[];

JNIEXPORT void JNICALL Java_targets_Twisted_bind(JNIEnv *env, jclass owner, jboolean twist) {
    JNINativeMethod natives[] = {{"value", "()I", shared_value}, {"twisted", "()I", shared_value + 1}};
    (*env)->RegisterNatives(env, owner, natives, twist ? 2 : 1);
}

/* The process goes on as another program, which ends with its input. */
JNIEXPORT void JNICALL Java_targets_Twisted_become(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    execlp("cat", "cat", (char *)0);
}
