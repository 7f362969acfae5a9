/*
 * Binds the thousands of natives of targets.Thousands, which the harness declares, to one function.
 */
#include <jni.h>
#include <stdio.h>

enum { THOUSANDS = 6000 };

static jint JNICALL call(JNIEnv *env, jclass class)
{
    (void)env;
    (void)class;
    return 0;
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved)
{
    (void)reserved;
    JNIEnv *env;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != JNI_OK)
        return JNI_ERR;
    jclass class = (*env)->FindClass(env, "targets/Thousands");
    for (int number = 0; class && number < THOUSANDS; number++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", number);
        JNINativeMethod method = {name, "()I", (void *)call};
        if ((*env)->RegisterNatives(env, class, &method, 1) != JNI_OK)
            return JNI_ERR;
    }
    return class ? JNI_VERSION_1_8 : JNI_ERR;
}
