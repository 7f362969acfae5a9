/* The smallest native, and what two readings of the time stamp counter cost. */
#include <jni.h>
#include <time.h>
#include <x86intrin.h>

/* Begins as most functions do: a kernel's probe on a bare ret would cost more than on others. */
__attribute__((naked)) JNIEXPORT void JNICALL Java_targets_Stubs_empty(JNIEnv *env __attribute__((unused)),
                                                                       jclass owner __attribute__((unused))) {
    __asm__("push %rbp; mov %rsp, %rbp; pop %rbp; ret");
}

static jlong now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

JNIEXPORT jlong JNICALL Java_targets_Stubs_readings(JNIEnv *env, jclass owner, jint pairs) {
    volatile unsigned long long sink = 0;
    (void)env, (void)owner;
    jlong began = now();
    for (jint i = 0; i < pairs; i++) {
        unsigned long long start = __rdtsc();
        sink += __rdtsc() - start;
    }
    return now() - began;
}
