/* What is known of the threads that OpenMP keeps for a calling thread; parallel.c says why it matters. */
#ifndef TCONV_CPU_TEAM_H
#define TCONV_CPU_TEAM_H

#include <stdbool.h>

typedef struct tconv_cpu_team tconv_cpu_team;

/* Reads what the environment says of OpenMP's threads, once for the process, if it was not read yet. */
void tconv_cpu_team_init(void);

/* The calling thread's. NULL where it must not use OpenMP: there is no memory for a record, or this is a child forked from a
 * thread whose team stayed behind in the parent, which libgomp would wait for. */
tconv_cpu_team *tconv_cpu_team_of_caller(void);

/* The size of team to open for so many shares, of up to `most` threads: 1 where none can be made. anew: OpenMP makes this
 * team's threads for this once, whatever stands. */
int tconv_cpu_team_prepare(tconv_cpu_team *team, int shares, int most, bool anew);

/* Each thread of a team but the calling one says that it is there. */
void tconv_cpu_team_join(tconv_cpu_team *team);

/* A team was asked for, and OpenMP gave so many. */
void tconv_cpu_team_ran(tconv_cpu_team *team, int asked, int got);

#endif
