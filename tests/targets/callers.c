/* Natives of targets.CallerNatives and CallerControl: the former count their calls by path, and tell their stack when they are asked to. */
#define _GNU_SOURCE
#include <errno.h>
#include <jni.h>
#include <time.h>

#define PATHS 128

enum { TICK, OWN, MANY, LOCKED, RAISE, CALL_BACK, WORK, PASSING, METHODS };

struct counter {
    long calls;
    long wall_ns;
    long cpu_ns;
};

static struct counter counters[METHODS][PATHS];
static long cpu_of_threads;
static volatile int learning;
static jclass callers;
static jmethodID learned;

static void add(long *to, long number) {
    __atomic_fetch_add(to, number, __ATOMIC_RELAXED);
}

static long now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* What all of them do. */
static inline void called(JNIEnv *env, int method, jint path) {
    add(&counters[method][path].calls, 1);
    if (__builtin_expect(learning, 0)) {
        (*env)->CallStaticVoidMethod(env, callers, learned, path);
    }
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
    JNIEnv *env;
    (void)reserved;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != 0) {
        return -1;
    }
    jclass found = (*env)->FindClass(env, "targets/Callers");
    if (found == NULL) {
        return -1;
    }
    callers = (*env)->NewGlobalRef(env, found);
    learned = (*env)->GetStaticMethodID(env, callers, "learned", "(I)V");
    return JNI_VERSION_1_8;
}

JNIEXPORT jint JNICALL Java_targets_CallerNatives_tick(JNIEnv *env, jclass owner, jint path) {
    (void)owner;
    called(env, TICK, path);
    return 0;
}

JNIEXPORT jint JNICALL Java_targets_CallerNatives_own(JNIEnv *env, jobject self, jint path) {
    (void)self;
    called(env, OWN, path);
    return 1;
}

JNIEXPORT jdouble JNICALL Java_targets_CallerNatives_many(
    JNIEnv *env, jclass owner, jint path, jlong a, jfloat b, jdouble c, jint d, jlong e, jfloat f, jdouble g, jint h,
    jlong i) {
    (void)owner;
    called(env, MANY, path);
    return a + b + c + d + e + f + g + h + i;
}

JNIEXPORT jint JNICALL Java_targets_CallerNatives_locked(JNIEnv *env, jclass owner, jint path) {
    (void)owner;
    called(env, LOCKED, path);
    return 2;
}

JNIEXPORT void JNICALL Java_targets_CallerNatives_raise(JNIEnv *env, jclass owner, jint path) {
    (void)owner;
    called(env, RAISE, path);
    jclass exception = (*env)->FindClass(env, "java/lang/IllegalStateException");
    if (exception != NULL) {
        (*env)->ThrowNew(env, exception, "raised in a native");
    }
}

JNIEXPORT void JNICALL Java_targets_CallerNatives_callBack(JNIEnv *env, jclass owner, jint path, jobject callback) {
    (void)owner;
    called(env, CALL_BACK, path);
    jclass class = (*env)->GetObjectClass(env, callback);
    jmethodID run = (*env)->GetMethodID(env, class, "run", "()V");
    if (run != NULL) {
        (*env)->CallVoidMethod(env, callback, run);
    }
}

/* Not static, so that their names are to be found in any case. Each returns its CPU time and reads that clock itself: the
   kernel likes to let others run when a system call ends, and on a busy machine that is a large part of the time. */
__attribute__((noinline)) long churn_cpu(long rounds) {
    long cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    unsigned long state = (unsigned long)rounds | 1;
    for (long i = 0; i < rounds; i++) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
        /* Without this the compiler would fold the loop. */
        __asm__ volatile("" : "+r"(state));
    }
    return now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
}

/* The same in code that nothing is known of: it has a frame pointer and no unwind information. */
void churn_blindly(long rounds);
__asm__(
    ".text\n"
    ".globl churn_blindly\n"
    ".type churn_blindly, @function\n"
    "churn_blindly:\n"
    "    push %rbp\n"
    "    mov %rsp, %rbp\n"
    "0:  dec %rdi\n"
    "    jnz 0b\n"
    "    pop %rbp\n"
    "    ret\n"
    ".size churn_blindly, . - churn_blindly\n");

__attribute__((noinline)) long take_a_nap(long nanos) {
    long cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID), until_ns = now_ns(CLOCK_MONOTONIC) + nanos;
    struct timespec until = {.tv_sec = until_ns / 1000000000L, .tv_nsec = until_ns % 1000000000L};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
    return now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
}

JNIEXPORT void JNICALL
Java_targets_CallerNatives_work(JNIEnv *env, jclass owner, jint path, jlong rounds, jlong nanos) {
    long wall_ns = now_ns(CLOCK_MONOTONIC), cpu_ns = 0;
    (void)owner;
    called(env, WORK, path);
    if (rounds > 0) {
        cpu_ns += churn_cpu(rounds);
    } else if (rounds < 0) {
        long before_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
        churn_blindly(-rounds);
        cpu_ns += now_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
    }
    if (nanos > 0) {
        cpu_ns += take_a_nap(nanos);
    }
    add(&counters[WORK][path].cpu_ns, cpu_ns);
    add(&counters[WORK][path].wall_ns, now_ns(CLOCK_MONOTONIC) - wall_ns);
}

static jint passing(JNIEnv *env, jclass owner, jint path) {
    (void)owner;
    called(env, PASSING, path);
    return 3;
}

JNIEXPORT void JNICALL Java_targets_CallerControl_bind(JNIEnv *env, jclass owner, jclass type) {
    static const JNINativeMethod method = {"passing", "(I)I", (void *)passing};
    (void)owner;
    (*env)->RegisterNatives(env, type, &method, 1);
}

JNIEXPORT void JNICALL Java_targets_CallerControl_learn(JNIEnv *env, jclass owner, jboolean on) {
    (void)env, (void)owner;
    learning = on;
}

JNIEXPORT jlong JNICALL Java_targets_CallerControl_cpu(JNIEnv *env, jclass owner, jboolean tell) {
    (void)env, (void)owner;
    if (tell) {
        return __atomic_exchange_n(&cpu_of_threads, 0, __ATOMIC_RELAXED);
    }
    add(&cpu_of_threads, now_ns(CLOCK_THREAD_CPUTIME_ID));
    return 0;
}

JNIEXPORT jlongArray JNICALL Java_targets_CallerControl_counted(JNIEnv *env, jclass owner, jint method, jint path) {
    struct counter *of = &counters[method][path];
    jlong copy[] = {
        __atomic_exchange_n(&of->calls, 0, __ATOMIC_RELAXED),
        __atomic_exchange_n(&of->wall_ns, 0, __ATOMIC_RELAXED),
        __atomic_exchange_n(&of->cpu_ns, 0, __ATOMIC_RELAXED),
    };
    jlongArray result = (*env)->NewLongArray(env, 3);
    (void)owner;
    if (result != NULL) {
        (*env)->SetLongArrayRegion(env, result, 0, 3, copy);
    }
    return result;
}
