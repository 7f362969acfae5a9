/* Natives of targets.Looking: they look ids up by the VM's table of functions, and by a copy of it from before anybody changed it. */
#define _GNU_SOURCE
#include <jni.h>
#include <jvmti.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NATIVE(type, name) JNIEXPORT type JNICALL Java_targets_Looking_##name

static struct JNINativeInterface_ before;
static jvmtiEnv *tools;
/* What the agent that this library can be has put itself in front of, and how often it was called. */
static jmethodID (*wrapped)(JNIEnv *, jclass, const char *, const char *);
static atomic_long calls;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
    JNIEnv *env;
    jvmtiCapabilities wanted = {.can_redefine_classes = 1};
    (void)reserved;
    if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_1_8) != JNI_OK ||
        (*vm)->GetEnv(vm, (void **)&tools, JVMTI_VERSION_1_2) != JNI_OK ||
        (*tools)->AddCapabilities(tools, &wanted) != JVMTI_ERROR_NONE) {
        return JNI_ERR;
    }
    before = **env;
    return JNI_VERSION_1_8;
}

typedef void *Found;

static Found look(const struct JNINativeInterface_ *table, JNIEnv *env, int kind, jclass class, const char *name,
                  const char *signature) {
    switch (kind) {
    case 0:
        return table->GetMethodID(env, class, name, signature);
    case 1:
        return table->GetStaticMethodID(env, class, name, signature);
    case 2:
        return table->GetFieldID(env, class, name, signature);
    default:
        return table->GetStaticFieldID(env, class, name, signature);
    }
}

static const char *const LETTERS[] = {"m", "s", "f", "g"};
static const char *const SIGNATURES[] = {"()V", "()V", "I", "I"};

/* Looks members up in turn, each twice: how often the two did not say the same. The names are in one of two buffers. */
NATIVE(jlong, compare)(JNIEnv *env, jclass owner, jclass class, jint members, jint rounds) {
    char names[2][16], signature[8];
    jlong wrong = 0;
    (void)owner;
    for (int round = 0; round < rounds; round++) {
        int kind = round % 4;
        char *name = names[round / 4 % 2];
        snprintf(name, sizeof names[0], "%s%d", LETTERS[kind], round / 4 % members);
        strcpy(signature, SIGNATURES[kind]);
        Found found = look(*env, env, kind, class, name, signature);
        wrong += found == NULL || found != look(&before, env, kind, class, name, signature);
    }
    return wrong;
}

/* Looks one up, which may throw: whether it was found. */
NATIVE(jboolean, find)(JNIEnv *env, jclass owner, jclass class, jint kind, jstring name, jboolean original) {
    char copy[64] = "";
    (void)owner;
    before.GetStringUTFRegion(env, name, 0, before.GetStringLength(env, name), copy);
    return look(original ? &before : *env, env, kind, class, copy, SIGNATURES[kind]) != NULL;
}

/* The same while an exception is pending, which stays so: whether it was found. */
NATIVE(jboolean, findThrowing)(JNIEnv *env, jclass owner, jclass class, jthrowable thrown) {
    (void)owner;
    before.Throw(env, thrown);
    return look(*env, env, 0, class, "m0", "()V") != NULL;
}

/* Nanoseconds for one look-up of the last member of classes in turn, which are kept by global references. */
NATIVE(jdouble, time)(JNIEnv *env, jclass owner, jobjectArray classes, jint kind, jint members, jint rounds) {
    enum { MOST = 64 };
    jobject all[MOST];
    int count = (*env)->GetArrayLength(env, classes);
    char name[16];
    struct timespec start, end;
    (void)owner;
    for (int i = 0; i < count && i < MOST; i++) {
        jobject local = (*env)->GetObjectArrayElement(env, classes, i);
        all[i] = (*env)->NewGlobalRef(env, local);
        (*env)->DeleteLocalRef(env, local);
    }
    snprintf(name, sizeof name, "%s%d", LETTERS[kind], members - 1);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int round = 0, next = 0; round < rounds; round++) {
        look(*env, env, kind, all[next], name, SIGNATURES[kind]);
        next = next + 1 == count ? 0 : next + 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    for (int i = 0; i < count && i < MOST; i++) {
        (*env)->DeleteGlobalRef(env, all[i]);
    }
    return ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / rounds;
}

/* How many of the four functions in the table are not those from before. */
NATIVE(jint, replaced)(JNIEnv *env, jclass owner) {
    (void)owner;
    return ((*env)->GetMethodID != before.GetMethodID) + ((*env)->GetStaticMethodID != before.GetStaticMethodID) +
           ((*env)->GetFieldID != before.GetFieldID) + ((*env)->GetStaticFieldID != before.GetStaticFieldID);
}

static jmethodID count(JNIEnv *env, jclass class, const char *name, const char *signature) {
    atomic_fetch_add(&calls, 1);
    return wrapped(env, class, name, signature);
}

/* Puts a function in front of what is in the table, or takes it away. */
NATIVE(jint, wrap)(JNIEnv *env, jclass owner, jboolean wraps) {
    jniNativeInterface *table;
    (void)env;
    (void)owner;
    if ((*tools)->GetJNIFunctionTable(tools, &table) != JVMTI_ERROR_NONE) {
        return -1;
    }
    if (wraps) {
        wrapped = table->GetMethodID;
        table->GetMethodID = count;
    } else {
        table->GetMethodID = wrapped;
    }
    jint error = (jint)(*tools)->SetJNIFunctionTable(tools, table);
    (*tools)->Deallocate(tools, (unsigned char *)table);
    return error;
}

NATIVE(jlong, wrappedCalls)(JNIEnv *env, jclass owner) {
    (void)env;
    (void)owner;
    return atomic_load(&calls);
}

NATIVE(jint, redefine)(JNIEnv *env, jclass owner, jclass class, jbyteArray bytes) {
    jbyte *content = (*env)->GetByteArrayElements(env, bytes, NULL);
    jvmtiClassDefinition definition = {class, (*env)->GetArrayLength(env, bytes), (unsigned char *)content};
    (void)owner;
    jint error = (jint)(*tools)->RedefineClasses(tools, 1, &definition);
    (*env)->ReleaseByteArrayElements(env, bytes, content, JNI_ABORT);
    return error;
}
