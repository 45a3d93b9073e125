import { createClient, RequestError, type RunEvent } from "@larkline/sdk";
import type { RunReport } from "@larkline/protocol/views/run-api";
import type { SeededRandom } from "../chaos/random.ts";
import { pause, sayingOf, type Said } from "./sayings.ts";
import { callerKeys, type World } from "./world.ts";

// Programs that have runs over the HTTP API, with the client that they are given.

/** A run that a program has asked for. */
export interface Requested extends Said {
  session: string;
  runId: string | undefined;
  refusal: string | undefined;
  /** What each reading of its stream has shown, to its end or until the reader left. */
  readings: RunEvent[][];
  /** What was known of it while it was not over, and afterwards. */
  reports: Pick<RunReport, "run_id" | "state" | "final_output">[];
  endedAtMs: number | undefined;
  /** What another caller is shown of it. */
  shownToOther: string | undefined;
  /** Its end has been read. */
  isOver: boolean;
}

interface Calling {
  world: World;
  requested: Requested[];
  at: number;
  random: SeededRandom;
}

/** Asks for runs of one session, each when the one before is taken, and follows them. Resolves when all are taken. */
export async function startCaller({ world, requested, at, random }: Calling): Promise<void> {
  const [client, other] = [callerKeys.ada, callerKeys.bo].map((token) =>
    createClient({ url: world.apiUrl, token }),
  );
  if (client === undefined || other === undefined) return;
  const session = `session-${at}`;
  const count = 1 + random.below(2);
  for (let position = 0; position < count; position += 1) {
    await pause(random.below(position === 0 ? 200 : 2_500));
    const run: Requested = {
      ...sayingOf(`${at}${position}`, random, false),
      session,
      runId: undefined,
      refusal: undefined,
      readings: [],
      reports: [],
      endedAtMs: undefined,
      shownToOther: undefined,
      isOver: false,
    };
    requested.push(run);
    const started = client.run(run.text, { session, messageId: run.key, detach: true });
    run.runId = await started.id().catch((error: unknown) => {
      if (error instanceof RequestError) run.refusal = error.message;
      return undefined;
    });
    if (run.runId === undefined) continue;
    run.isAccepted = true;
    void follow(run, { client, other, runId: run.runId, random });
  }
}

interface Following {
  client: ReturnType<typeof createClient>;
  other: ReturnType<typeof createClient>;
  runId: string;
  random: SeededRandom;
}

/** Asks how the run is, or reads its stream and leaves, until its end has been seen. */
async function follow(run: Requested, { client, other, runId, random }: Following): Promise<void> {
  while (!run.isOver) {
    await pause(random.below(1_500));
    // No contact for a minute: asked again.
    await (
      random.below(3) === 0
        ? ask()
        : read(random.below(2) === 0 ? random.below(6) : Number.POSITIVE_INFINITY)
    ).catch(() => undefined);
  }
  await ask().catch(() => undefined);
  run.shownToOther = await other
    .attach(runId)
    .report()
    .then(
      () => "a report",
      (error: unknown) => (error instanceof RequestError ? String(error.status) : "no contact"),
    );

  async function ask(): Promise<void> {
    const report = await client.attach(runId).report();
    run.reports.push(report);
    run.endedAtMs = report.ended_at ?? undefined;
  }

  async function read(most: number): Promise<void> {
    const reading: RunEvent[] = [];
    run.readings.push(reading);
    for await (const event of client.attach(runId).stream()) {
      reading.push(event);
      run.isOver ||= event.type === "done" || event.type === "error";
      if (reading.length > most) return;
    }
  }
}
