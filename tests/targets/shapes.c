/* Natives of many shapes. Each counts its own calls, so that the target knows the truth from both sides. */
#include <jni.h>
#include <setjmp.h>
#include <string.h>
#include <sys/mman.h>

#include "natives.h"

long native_calls[N_COUNTERS];

/* The same for the assembler, within reach of the program counter. */
extern long local_native_calls[N_COUNTERS] __attribute__((alias("native_calls"), visibility("hidden")));

JNIEXPORT jlongArray JNICALL Java_targets_Shapes_counters(JNIEnv *env, jclass owner) {
    jlong copy[N_COUNTERS];
    (void)owner;
    for (int i = 0; i < N_COUNTERS; i++) {
        copy[i] = __atomic_load_n(&native_calls[i], __ATOMIC_RELAXED);
    }
    jlongArray result = (*env)->NewLongArray(env, N_COUNTERS);
    if (result != NULL) {
        (*env)->SetLongArrayRegion(env, result, 0, N_COUNTERS, copy);
    }
    return result;
}

JNIEXPORT jint JNICALL Java_targets_Plain_add(JNIEnv *env, jclass owner, jint a, jint b) {
    (void)env, (void)owner;
    count_call(N_ADD);
    return a + b;
}

JNIEXPORT jlong JNICALL Java_targets_Plain_twice(JNIEnv *env, jobject self, jlong value) {
    (void)env, (void)self;
    count_call(N_TWICE);
    return 2 * value;
}

JNIEXPORT jint JNICALL Java_targets_Plain_over__I(JNIEnv *env, jclass owner, jint value) {
    (void)env, (void)owner;
    count_call(N_OVER_INT);
    return value;
}

JNIEXPORT jlong JNICALL Java_targets_Plain_over__J(JNIEnv *env, jclass owner, jlong value) {
    (void)env, (void)owner;
    count_call(N_OVER_LONG);
    return value;
}

JNIEXPORT jint JNICALL Java_targets_Plain_over__Ljava_lang_String_2_3I(
    JNIEnv *env, jclass owner, jstring text, jintArray values) {
    (void)owner;
    count_call(N_OVER_TEXT);
    return (*env)->GetStringLength(env, text) + (*env)->GetArrayLength(env, values);
}

JNIEXPORT jdouble JNICALL Java_targets_Plain_many(
    JNIEnv *env, jclass owner, jint a, jlong b, jfloat c, jdouble d, jbyte e, jshort f, jchar g, jboolean h,
    jint i, jlong j, jfloat k, jdouble l, jobject m, jint n) {
    (void)env, (void)owner;
    count_call(N_MANY);
    return a + b + c + d + e + f + g + h + i + j + k + l + (m != NULL) + n;
}

JNIEXPORT jint JNICALL Java_targets_Outer_00024Inner_inner(JNIEnv *env, jclass owner, jint value) {
    (void)env, (void)owner;
    count_call(N_INNER);
    return value;
}

#define NAMED(function, number)                                \
    JNIEXPORT jint JNICALL function(JNIEnv *env, jclass owner) { \
        (void)env, (void)owner;                                \
        count_call(number);                                    \
        return number;                                         \
    }

NAMED(Java_targets__000c9t_000e9_under_1score, N_UNDER_SCORE)
NAMED(Java_targets__000c9t_000e9__11, N_UNDER_ONE)
NAMED(Java_targets__000c9t_000e9_compt_000e9, N_ACCENT)
NAMED(Java_targets__000c9t_000e9__065e5_0672c, N_KANJI)
NAMED(Java_targets__000c9t_000e9__0d835_0dcb3, N_SUPPLEMENTARY)

static jint hidden_function(JNIEnv *env, jclass owner, jint value) {
    (void)env, (void)owner;
    count_call(N_HIDDEN);
    return value;
}

static jint shared_function(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    count_call(N_ALIAS);
    return 1;
}

JNIEXPORT void JNICALL Java_targets_Shapes_register(JNIEnv *env, jclass owner, jclass registered) {
    static const JNINativeMethod methods[] = {
        {"hidden", "(I)I", (void *)hidden_function},
        {"firstAlias", "()I", (void *)shared_function},
        {"secondAlias", "()I", (void *)shared_function},
    };
    (void)owner;
    /* What is bound already would not be bound again. */
    (*env)->UnregisterNatives(env, registered);
    (*env)->RegisterNatives(env, registered, methods, sizeof methods / sizeof methods[0]);
}

/* push %rbp; movabs $counter, %rax; lock incq (%rax); mov $35, %eax; pop %rbp; ret */
JNIEXPORT void JNICALL Java_targets_Made_make(JNIEnv *env, jclass owner) {
    unsigned char code[] = {0x55, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x48, 0xff, 0x00, 0xb8, 35, 0, 0, 0, 0x5d, 0xc3};
    long *counter = &native_calls[N_MADE];
    memcpy(code + 3, &counter, sizeof counter);
    void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) {
        return;
    }
    memcpy(made, code, sizeof code);
    mprotect(made, 4096, PROT_READ | PROT_EXEC);
    JNINativeMethod method = {"made", "()I", made};
    (*env)->RegisterNatives(env, owner, &method, 1);
}

JNIEXPORT jint JNICALL Java_targets_Nested_descend(JNIEnv *env, jclass owner, jint depth) {
    count_call(N_DESCEND);
    jmethodID step = (*env)->GetStaticMethodID(env, owner, "step", "(I)I");
    return step == NULL ? -1 : 1 + (*env)->CallStaticIntMethod(env, owner, step, depth - 1);
}

JNIEXPORT void JNICALL Java_targets_Throwing_thrown(JNIEnv *env, jclass owner) {
    (void)owner;
    count_call(N_THROWN);
    jclass exception = (*env)->FindClass(env, "java/lang/IllegalStateException");
    if (exception != NULL) {
        (*env)->ThrowNew(env, exception, "raised in a native");
    }
}

JNIEXPORT void JNICALL Java_targets_Throwing_pending(JNIEnv *env, jclass owner) {
    count_call(N_PENDING);
    jmethodID fail = (*env)->GetStaticMethodID(env, owner, "fail", "()V");
    if (fail != NULL) {
        (*env)->CallStaticVoidMethod(env, owner, fail);
    }
}

static __thread jmp_buf landing;

JNIEXPORT void JNICALL Java_targets_Jumping_inner(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    count_call(N_JUMP_INNER);
    longjmp(landing, 1);
}

JNIEXPORT jint JNICALL Java_targets_Jumping_outer(JNIEnv *env, jclass owner) {
    /* Volatile: a plain call to a function that does not return could be turned into a jump. */
    void (JNICALL *volatile inner)(JNIEnv *, jclass) = Java_targets_Jumping_inner;
    count_call(N_JUMP_OUTER);
    if (setjmp(landing) == 0) {
        inner(env, owner);
    }
    return 1;
}
