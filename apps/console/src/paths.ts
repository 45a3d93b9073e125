/** The page of one job. */
export function jobPath(queue: string, jobId: string): string {
  return `/jobs/${encodeURIComponent(queue)}/${encodeURIComponent(jobId)}`;
}

/** The page of one session. */
export function sessionPath(session: string): string {
  return `/sessions/${encodeURIComponent(session)}`;
}

/** The page of something that was given up. */
export function letterPath(session: string, id: string): string {
  return `/dead-letters/${encodeURIComponent(session)}/${encodeURIComponent(id)}`;
}

/** Why a message has no answer: by the id of it, of its trace, its chat, its person or its session. */
export function whyPath(id: string): string {
  return `/why?q=${encodeURIComponent(id)}`;
}

/** Whether somebody may be sent there after signing in: to a page of ours only. */
export function isOwnPath(path: string): boolean {
  return /^\/(?![/\\])[\x21-\x7e]*$/.test(path);
}
