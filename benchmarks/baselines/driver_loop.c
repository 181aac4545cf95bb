// The driver's own cost of a launch: cuLaunchKernel over and over with arguments that were packed once, in C.
#include <dlfcn.h>
#include <stddef.h>

typedef int (*LaunchKernel)(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                            unsigned int block_x, unsigned int block_y, unsigned int block_z,
                            unsigned int shared_bytes, void *stream, void **parameters, void **extra);

// Returns the first driver error, 0 for none, -1 without a driver.
int launch_repeatedly(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int threads, void *stream,
                      void **parameters, int count)
{
    static LaunchKernel launch_kernel = NULL;
    if (launch_kernel == NULL) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        launch_kernel = library == NULL ? NULL : (LaunchKernel)dlsym(library, "cuLaunchKernel");
    }
    if (launch_kernel == NULL) {
        return -1;
    }
    for (int i = 0; i < count; i++) {
        int result = launch_kernel(function, grid_x, grid_y, 1, threads, 1, 1, 0, stream, parameters, NULL);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}
