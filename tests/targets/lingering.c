/* Natives of targets.Lingering: one that runs Java code for as long as that takes, and one that does nothing. */
#include <jni.h>

JNIEXPORT void JNICALL Java_targets_Lingering_stay(JNIEnv *env, jclass owner, jobject inside) {
    (void)owner;
    jmethodID run = (*env)->GetMethodID(env, (*env)->GetObjectClass(env, inside), "run", "()V");
    if (run != NULL) {
        (*env)->CallVoidMethod(env, inside, run);
    }
}

JNIEXPORT void JNICALL Java_targets_Lingering_beat(JNIEnv *env, jclass owner) {
    (void)env;
    (void)owner;
}
