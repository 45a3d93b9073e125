/** The page of one job. */
export function jobPath(queue: string, jobId: string): string {
  return `/jobs/${encodeURIComponent(queue)}/${encodeURIComponent(jobId)}`;
}

/** The page of one session. */
export function sessionPath(session: string): string {
  return `/sessions/${encodeURIComponent(session)}`;
}

/** Whether somebody may be sent there after signing in: to a page of ours only. */
export function isOwnPath(path: string): boolean {
  return /^\/(?![/\\])[\x21-\x7e]*$/.test(path);
}
