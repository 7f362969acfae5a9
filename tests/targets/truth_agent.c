/*
 * JVMTI agent that knows the truth about native methods from the VM's own events: every NativeMethodBind since the
 * start, and on command every native method of every loaded class.
 *
 * Only for tests: nprof itself needs no agent.
 */
#include <jni.h>
#include <jvmti.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bind {
    jmethodID method;
    void *address;
};

static jvmtiEnv *jvmti;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bind *binds;
static size_t bind_count;
static size_t bind_room;

/*
 * Binds of the primordial phase come without a JNIEnv, and their methods cannot be asked for a name yet. The id is
 * all that is kept; names are asked for when the truth is written.
 */
static void JNICALL on_bind(
    jvmtiEnv *ti, JNIEnv *env, jthread thread, jmethodID method, void *address, void **new_address) {
    (void)ti, (void)env, (void)thread, (void)new_address;
    pthread_mutex_lock(&lock);
    if (bind_count == bind_room) {
        bind_room = bind_room == 0 ? 1024 : 2 * bind_room;
        binds = realloc(binds, bind_room * sizeof *binds);
        if (binds == NULL) {
            abort();
        }
    }
    binds[bind_count++] = (struct bind){method, address};
    pthread_mutex_unlock(&lock);
}

/* What the method was bound to last, or NULL. */
static void *bound_address(jmethodID method) {
    void *address = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = bind_count; i > 0 && address == NULL; i--) {
        if (binds[i - 1].method == method) {
            address = binds[i - 1].address;
        }
    }
    pthread_mutex_unlock(&lock);
    return address;
}

static void free_jvmti(void *memory) {
    (*jvmti)->Deallocate(jvmti, memory);
}

/* "Ljava/lang/Object;" to "java.lang.Object", in place. */
static char *dotted(char *signature) {
    char *name = signature + 1;
    name[strlen(name) - 1] = '\0';
    for (char *at = name; *at != '\0'; at++) {
        if (*at == '/') {
            *at = '.';
        }
    }
    return name;
}

static void write_method(FILE *out, const char *owner, jmethodID method) {
    char *name = NULL;
    char *signature = NULL;
    jboolean native = JNI_FALSE;
    if ((*jvmti)->IsMethodNative(jvmti, method, &native) != JVMTI_ERROR_NONE || !native) {
        return;
    }
    if ((*jvmti)->GetMethodName(jvmti, method, &name, &signature, NULL) == JVMTI_ERROR_NONE) {
        fprintf(out, "native\t%s\t%s\t%s\t%lx\n", owner, name, signature, (unsigned long)bound_address(method));
        free_jvmti(name);
        free_jvmti(signature);
    }
}

/* The VM tells the methods of prepared classes only; the others are written down by name. */
static void write_class(FILE *out, jclass class) {
    char *signature = NULL;
    jmethodID *methods = NULL;
    jint count = 0;
    jint status = 0;
    if ((*jvmti)->GetClassStatus(jvmti, class, &status) != JVMTI_ERROR_NONE ||
        (status & (JVMTI_CLASS_STATUS_ARRAY | JVMTI_CLASS_STATUS_PRIMITIVE)) != 0 ||
        (*jvmti)->GetClassSignature(jvmti, class, &signature, NULL) != JVMTI_ERROR_NONE) {
        return;
    }
    const char *owner = dotted(signature);
    if ((*jvmti)->GetClassMethods(jvmti, class, &count, &methods) != JVMTI_ERROR_NONE) {
        fprintf(out, "unprepared\t%s\n", owner);
    }
    for (jint i = 0; i < count; i++) {
        write_method(out, owner, methods[i]);
    }
    free_jvmti(methods);
    free_jvmti((char *)signature);
}

static void raise(JNIEnv *env, const char *what) {
    jclass exception = (*env)->FindClass(env, "java/lang/IllegalStateException");
    if (exception != NULL) {
        (*env)->ThrowNew(env, exception, what);
    }
}

JNIEXPORT void JNICALL Java_targets_Truth_dump(JNIEnv *env, jclass owner, jstring path) {
    jint count = 0;
    jclass *classes = NULL;
    const char *name = (*env)->GetStringUTFChars(env, path, NULL);
    FILE *out = name == NULL ? NULL : fopen(name, "w");
    (void)owner;
    if (out == NULL || (*jvmti)->GetLoadedClasses(jvmti, &count, &classes) != JVMTI_ERROR_NONE) {
        raise(env, "the truth could not be written");
        return;
    }
    for (jint i = 0; i < count; i++) {
        write_class(out, classes[i]);
        (*env)->DeleteLocalRef(env, classes[i]);
    }
    free_jvmti(classes);
    (*env)->ReleaseStringUTFChars(env, path, name);
    if (fclose(out) != 0) {
        raise(env, "the truth could not be written");
    }
}

JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *vm, char *options, void *reserved) {
    jvmtiCapabilities capabilities = {.can_generate_native_method_bind_events = 1};
    jvmtiEventCallbacks callbacks = {.NativeMethodBind = on_bind};
    (void)options, (void)reserved;
    if ((*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2) != JNI_OK ||
        (*jvmti)->AddCapabilities(jvmti, &capabilities) != JVMTI_ERROR_NONE ||
        (*jvmti)->SetEventCallbacks(jvmti, &callbacks, sizeof callbacks) != JVMTI_ERROR_NONE ||
        (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_NATIVE_METHOD_BIND, NULL) !=
            JVMTI_ERROR_NONE) {
        fprintf(stderr, "truth agent: the VM refuses bind events\n");
        return JNI_ERR;
    }
    return JNI_OK;
}
