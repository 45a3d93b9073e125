/** A failure the person at the terminal can act on: one line that says what to do. */
export class Failure extends Error {}

/** The run was ended from outside (Ctrl-C, SIGTERM), which is no failure. */
export class Stopped extends Error {}
