/* The library that targets.LateLibrary loads on command. */
#include <jni.h>

JNIEXPORT jint JNICALL Java_targets_LateLibrary_late(JNIEnv *env, jclass owner, jint value) {
    (void)env, (void)owner;
    return value + 1;
}
