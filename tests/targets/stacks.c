/* What targets.Stacks needs beside its assembler: threads that wait, and calls back into Java. */
#include <jni.h>
#include <jvmti.h>
#include <semaphore.h>
#include <stddef.h>

#include "stacks.h"

struct slot {
    long sp;
    long fp;
    int armed;
    sem_t go;
    char rest[SLOT_SIZE - 24 - sizeof(sem_t)];
};

_Static_assert(sizeof(struct slot) == SLOT_SIZE, "the assembler counts on it");
_Static_assert(offsetof(struct slot, sp) == SLOT_SP, "the assembler counts on it");
_Static_assert(offsetof(struct slot, fp) == SLOT_FP, "the assembler counts on it");
_Static_assert(offsetof(struct slot, armed) == SLOT_ARMED, "the assembler counts on it");

__attribute__((visibility("hidden"))) struct slot stack_slots[SLOTS];
static sem_t parked;

static void wait_for(sem_t *semaphore) {
    while (sem_wait(semaphore) != 0) {
    }
}

/* The rest of park(). */
__attribute__((visibility("hidden"))) jint wait_in_slot(struct slot *slot) {
    sem_post(&parked);
    wait_for(&slot->go);
    return 0;
}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved) {
    (void)vm, (void)reserved;
    sem_init(&parked, 0, 0);
    for (int i = 0; i < SLOTS; i++) {
        sem_init(&stack_slots[i].go, 0, 0);
    }
    return JNI_VERSION_1_8;
}

JNIEXPORT void JNICALL Java_targets_Stacks_arm(JNIEnv *env, jclass owner, jint slot, jboolean armed) {
    (void)env, (void)owner;
    stack_slots[slot].armed = armed;
}

JNIEXPORT void JNICALL Java_targets_Stacks_awaitParked(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    wait_for(&parked);
}

JNIEXPORT void JNICALL Java_targets_Stacks_release(JNIEnv *env, jclass owner, jint slot) {
    (void)env, (void)owner;
    sem_post(&stack_slots[slot].go);
}

JNIEXPORT jlongArray JNICALL Java_targets_Stacks_registers(JNIEnv *env, jclass owner, jint slot) {
    jlong values[] = {stack_slots[slot].sp, stack_slots[slot].fp};
    (void)owner;
    jlongArray result = (*env)->NewLongArray(env, 2);
    if (result != NULL) {
        (*env)->SetLongArrayRegion(env, result, 0, 2, values);
    }
    return result;
}

JNIEXPORT void JNICALL Java_targets_Stacks_callBack(JNIEnv *env, jclass owner, jobject callback) {
    (void)owner;
    jclass class = (*env)->GetObjectClass(env, callback);
    jmethodID run = (*env)->GetMethodID(env, class, "run", "()V");
    if (run != NULL) {
        (*env)->CallVoidMethod(env, callback, run);
    }
}

/* Calls a function that takes one int. */
JNIEXPORT void JNICALL Java_targets_Stacks_callPointer(JNIEnv *env, jclass owner, jlong address, jint argument) {
    (void)env, (void)owner;
    ((void (*)(int))address)(argument);
}

/* Replaces a class, so that those of its methods that run become obsolete. */
JNIEXPORT jint JNICALL Java_targets_Stacks_redefine(JNIEnv *env, jclass owner, jclass type, jbyteArray bytes) {
    (void)owner;
    JavaVM *vm;
    jvmtiEnv *tools;
    if ((*env)->GetJavaVM(env, &vm) != 0 || (*vm)->GetEnv(vm, (void **)&tools, JVMTI_VERSION_1_2) != 0) {
        return -1;
    }
    jvmtiCapabilities wanted = {.can_redefine_classes = 1};
    jvmtiError error = (*tools)->AddCapabilities(tools, &wanted);
    jbyte *content = (*env)->GetByteArrayElements(env, bytes, NULL);
    if (error == JVMTI_ERROR_NONE && content != NULL) {
        jvmtiClassDefinition definition = {type, (*env)->GetArrayLength(env, bytes), (unsigned char *)content};
        error = (*tools)->RedefineClasses(tools, 1, &definition);
    }
    if (content != NULL) {
        (*env)->ReleaseByteArrayElements(env, bytes, content, JNI_ABORT);
    }
    (*tools)->DisposeEnvironment(tools);
    return (jint)error;
}
