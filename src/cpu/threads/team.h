/* Keeps count of the threads that OpenMP has for a calling thread; parallel.c says why that matters. */
#ifndef TCONV_CPU_THREADS_TEAM_H
#define TCONV_CPU_THREADS_TEAM_H

#include <stdbool.h>

typedef struct tconv_cpu_team tconv_cpu_team;

/* Reads the environment variables about OpenMP's threads, once for the process. */
void tconv_cpu_team_init(void);

/* Returns the calling thread's team. NULL where it must not use OpenMP: there is no memory for a record, or this
 * process is a child forked from a thread whose team stayed behind in the parent, which libgomp would wait for. */
tconv_cpu_team *tconv_cpu_team_of_caller(void);

/* Returns the size of the team to open for so many shares, of up to `most` threads: 1 where no thread can be made.
 * anew: OpenMP makes the threads of this team for this once, whatever teams exist. */
int tconv_cpu_team_prepare(tconv_cpu_team *team, int shares, int most, bool anew);

/* Counts the thread that calls it as one of the team; each but the team's caller does so. */
void tconv_cpu_team_join(tconv_cpu_team *team);

/* Notes that a team of `asked` threads was asked for, and that OpenMP gave `got`. */
void tconv_cpu_team_ran(tconv_cpu_team *team, int asked, int got);

#endif
