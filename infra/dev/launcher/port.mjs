import { createServer } from "node:net";
import { Failure } from "./failure.mjs";
import { text } from "./texts.mjs";

async function listenOnce(port, host) {
  const server = createServer();
  return await new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      const taken = server.address().port;
      server.close(() => resolve(taken));
    });
  });
}

/** A port of loopback that is free at this moment. */
export async function freePort() {
  return await listenOnce(0, "127.0.0.1");
}

/** Fails with a line for each port that cannot be used; it names the port and the variable that changes it. */
export async function requireFree(places) {
  const problems = await Promise.all(places.map(problemOf));
  const found = problems.filter((problem) => problem !== undefined);
  if (found.length > 0) throw new Failure(found.join("\n"));
}

async function problemOf({ service, port, host, variable }) {
  try {
    await listenOnce(port, host);
    return undefined;
  } catch (error) {
    return error.code === "EADDRINUSE"
      ? text("portTaken", port, service, variable)
      : text("portRefused", port, variable, error.code);
  }
}
