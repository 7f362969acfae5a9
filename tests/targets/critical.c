/* A native with a critical function, which compiled code of older JVMs calls in its place. Both know how often. */
#include <jni.h>

static long ordinary_calls, critical_calls;

static jint sum_of(jint first, jint length, const jint *values) {
    jint sum = first;
    for (jint i = 0; i < length; i++) {
        sum += values[i];
    }
    return sum;
}

JNIEXPORT jint JNICALL Java_targets_Critical_sum(JNIEnv *env, jclass owner, jint first, jintArray values) {
    (void) owner;
    __atomic_fetch_add(&ordinary_calls, 1, __ATOMIC_RELAXED);
    jint length = (*env)->GetArrayLength(env, values);
    jint *elements = (*env)->GetPrimitiveArrayCritical(env, values, 0);
    jint sum = sum_of(first, length, elements);
    (*env)->ReleasePrimitiveArrayCritical(env, values, elements, JNI_ABORT);
    return sum;
}

JNIEXPORT jint JNICALL JavaCritical_targets_Critical_sum(jint first, jint length, jint *values) {
    __atomic_fetch_add(&critical_calls, 1, __ATOMIC_RELAXED);
    return sum_of(first, length, values);
}

JNIEXPORT jlong JNICALL Java_targets_Critical_counted(JNIEnv *env, jclass owner, jboolean critical) {
    (void) env;
    (void) owner;
    return __atomic_load_n(critical ? &critical_calls : &ordinary_calls, __ATOMIC_RELAXED);
}
