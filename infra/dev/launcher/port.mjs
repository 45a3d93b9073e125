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

/** Fails with a line that names the port and the variable when another program has it. */
export async function requireFree({ service, port, host, variable }) {
  try {
    await listenOnce(port, host);
  } catch (error) {
    throw new Failure(
      error.code === "EADDRINUSE"
        ? text("portTaken", port, service, variable)
        : text("portRefused", port, variable, error.code),
    );
  }
}
