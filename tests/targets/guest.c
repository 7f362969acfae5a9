/* The library of guests.Guest, unloaded together with its class. */
#include <jni.h>

JNIEXPORT void JNICALL Java_guests_Guest_visit(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
}
