/*
 * Loads the agent as a JVM on musl would, and has it read options that mean nothing: a library that needs anything that
 * musl does not have is not loaded.
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *agent = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    int (*attach)(void *, char *, void *) = NULL;
    if (agent)
        *(void **)&attach = dlsym(agent, "Agent_OnAttach");
    if (!attach) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    return attach(NULL, "nonsense", NULL);
}
