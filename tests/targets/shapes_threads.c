/* Natives that keep a thread inside (targets.Blocking) or end it there (targets.Dying). */
#define _GNU_SOURCE
#include <jni.h>
#include <pthread.h>
#include <sys/mman.h>

#include "natives.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long inside;
static long releases;

JNIEXPORT void JNICALL Java_targets_Blocking_block(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    count_call(N_BLOCK);
    pthread_mutex_lock(&lock);
    long entered_at = releases;
    inside++;
    pthread_cond_broadcast(&changed);
    while (releases == entered_at) {
        pthread_cond_wait(&changed, &lock);
    }
    inside--;
    pthread_mutex_unlock(&lock);
}

JNIEXPORT void JNICALL Java_targets_Blocking_awaitInside(JNIEnv *env, jclass owner, jint threads) {
    (void)env, (void)owner;
    pthread_mutex_lock(&lock);
    while (inside < threads) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

JNIEXPORT void JNICALL Java_targets_Blocking_release(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    pthread_mutex_lock(&lock);
    releases++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/*
 * The VM goes on to list a thread that ended without detaching, and the collector goes on to scan its stack. So the
 * stack is ours and stays mapped, and nothing else ever writes to it.
 */
#define STACK_BYTES (1024 * 1024)

struct mortal {
    JavaVM *vm;
    jclass owner;
    jmethodID entry;
};

static void *live_and_die(void *argument) {
    struct mortal *self = argument;
    JNIEnv *env;
    if ((*self->vm)->AttachCurrentThreadAsDaemon(self->vm, (void **)&env, NULL) == JNI_OK) {
        (*env)->CallStaticVoidMethod(env, self->owner, self->entry);
    }
    return self; /* Only reached when the thread did not die. */
}

JNIEXPORT void JNICALL Java_targets_Dying_die(JNIEnv *env, jclass owner) {
    (void)env, (void)owner;
    count_call(N_DIE);
    pthread_exit(NULL);
}

static void fail(JNIEnv *env, const char *what) {
    jclass exception = (*env)->FindClass(env, "java/lang/IllegalStateException");
    if (exception != NULL) {
        (*env)->ThrowNew(env, exception, what);
    }
}

JNIEXPORT void JNICALL Java_targets_Dying_spawn(JNIEnv *env, jclass owner) {
    struct mortal mortal = {.entry = (*env)->GetStaticMethodID(env, owner, "inside", "()V")};
    void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    void *outcome = NULL;
    pthread_attr_t attributes;
    pthread_t thread;

    (*env)->GetJavaVM(env, &mortal.vm);
    mortal.owner = (*env)->NewGlobalRef(env, owner);
    if (stack == MAP_FAILED || mortal.owner == NULL || mortal.entry == NULL) {
        fail(env, "no memory for a thread");
        return;
    }
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, STACK_BYTES);
    if (pthread_create(&thread, &attributes, live_and_die, &mortal) != 0) {
        fail(env, "the thread could not be started");
    } else {
        pthread_join(thread, &outcome);
        if (outcome != NULL) {
            fail(env, "the thread came back alive");
        }
    }
    pthread_attr_destroy(&attributes);
    (*env)->DeleteGlobalRef(env, mortal.owner);
}
