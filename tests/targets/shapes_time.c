/* Natives of targets.Timed: they time themselves, so that a measurement can be compared with the target's own. */
#define _GNU_SOURCE
#include <errno.h>
#include <jni.h>
#include <time.h>

#include "natives.h"

struct measured {
    long total_ns;
    long longest_ns;
};

static struct measured sleeps;
static struct measured works;

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void record(struct measured *to, long began_ns) {
    long took_ns = now_ns() - began_ns;
    long longest_ns = __atomic_load_n(&to->longest_ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&to->total_ns, took_ns, __ATOMIC_RELAXED);
    while (took_ns > longest_ns &&
           !__atomic_compare_exchange_n(&to->longest_ns, &longest_ns, took_ns, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

JNIEXPORT void JNICALL Java_targets_Timed_sleep(JNIEnv *env, jclass owner, jlong nanos) {
    long began_ns = now_ns();
    long until_ns = began_ns + nanos;
    struct timespec until = {.tv_sec = until_ns / 1000000000L, .tv_nsec = until_ns % 1000000000L};
    (void)env, (void)owner;
    count_call(N_SLEEP);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
    record(&sleeps, began_ns);
}

JNIEXPORT jlong JNICALL Java_targets_Timed_work(JNIEnv *env, jclass owner, jlong iterations) {
    long began_ns = now_ns();
    unsigned long state = (unsigned long)iterations | 1;
    (void)env, (void)owner;
    count_call(N_WORK);
    for (jlong i = 0; i < iterations; i++) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
        /* Without this the compiler would fold the loop. */
        __asm__ volatile("" : "+r"(state));
    }
    record(&works, began_ns);
    return (jlong)(state >> 1);
}

JNIEXPORT jlongArray JNICALL Java_targets_Timed_measured(JNIEnv *env, jclass owner) {
    jlong copy[] = {sleeps.total_ns, sleeps.longest_ns, works.total_ns, works.longest_ns};
    jlongArray result = (*env)->NewLongArray(env, 4);
    (void)owner;
    if (result != NULL) {
        (*env)->SetLongArrayRegion(env, result, 0, 4, copy);
    }
    return result;
}

JNIEXPORT void JNICALL Java_targets_Timed_reset(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    sleeps = works = (struct measured){0, 0};
}
