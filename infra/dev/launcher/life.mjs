import { Failure, Stopped } from "./failure.mjs";
import { text } from "./texts.mjs";

const oldestNode = 20;

function say(line) {
  console.error(line);
}

/**
 * Runs a command of this folder from its start to the exit code. `work` gets a signal that aborts
 * on Ctrl-C, SIGTERM or SIGHUP; one Ctrl-C may arrive twice (from the terminal and from npm), so
 * later signals change nothing: `work` has deadlines of its own. `stoppedCode` is the exit code of
 * a run that was ended this way before `work` returned one.
 */
export async function live(work, { stoppedCode }) {
  const controller = new AbortController();
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(name, () => controller.abort());
  // A terminal that is gone must not keep us from stopping what we started.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  try {
    if (process.platform === "win32") throw new Failure(text("windows"));
    if (Number.parseInt(process.versions.node, 10) < oldestNode) {
      throw new Failure(text("oldNode", process.versions.node));
    }
    process.exitCode = await work({ signal: controller.signal, say });
  } catch (error) {
    if (error instanceof Failure) say(error.message);
    else if (!(error instanceof Stopped)) console.error(error);
    process.exitCode = error instanceof Stopped ? stoppedCode : 1;
  }
}
