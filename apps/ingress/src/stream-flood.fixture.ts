import { request } from "node:http";

// A program for tests: opens as many event streams at once as its arguments say, each on a connection of its own, says in one
// line of JSON what became of them, and holds those that were taken until its input ends.

const [, , url = "", count = "0"] = process.argv;

/** What the server answered: status and `Retry-After`, or the error of the connection. */
async function open(session: number): Promise<string> {
  return await new Promise((resolve) => {
    const headers = { "content-type": "application/json" };
    const sent = request(`${url}/chat`, { method: "POST", headers, agent: false }, (response) => {
      response.on("error", () => undefined).resume();
      resolve(`${response.statusCode} ${response.headers["retry-after"] ?? ""}`.trim());
    });
    sent.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    sent.end(
      JSON.stringify({ message: "hi", session_id: `flood-${session}`, on_disconnect: "cancel" }),
    );
  });
}

/** A server that cannot read a request for ten seconds ends its connection: its client asks again. */
async function openInTheEnd(session: number): Promise<string> {
  for (;;) {
    const answer = await open(session);
    if (answer !== "ECONNRESET") return answer;
  }
}

const answers = await Promise.all(
  Array.from({ length: Number(count) }, async (_, at) => await openInTheEnd(at)),
);
const tally: Record<string, number> = {};
for (const answer of answers) tally[answer] = (tally[answer] ?? 0) + 1;
process.stdout.write(`${JSON.stringify(tally)}\n`);
process.stdin.resume().on("end", () => process.exit(0));
