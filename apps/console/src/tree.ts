import { rootSessionOf, turnIdOf, type SessionKey } from "@larkline/protocol";
import { agentOfTurn } from "@larkline/protocol/turn";
import type { ChildSession } from "@larkline/store";
import { endOf, type Diagnosis, type Standing, type TreeRow } from "./diagnosis.ts";
import { html, type Html, table } from "./html.ts";
import { sessionPath, type View } from "./page.ts";
import type { Services } from "./services.ts";
import { durationText } from "./why-text.ts";
import type { Word } from "./words.ts";

// A run with its helpers, and theirs: who works below whom, since when, what each waits for, and what it costs.

/** Helpers that a page shows. */
const maxRows = 100;

/** The helpers below a run, each before those below itself, oldest first; empty where it has none. */
export async function readTree(
  { store, approvals }: Services,
  { session, seq }: { session: SessionKey; seq: number },
): Promise<TreeRow[]> {
  const children = (await store.children(rootSessionOf(session))).toSorted((one, other) => {
    return one.beganAtMs - other.beganAtMs;
  });
  const calledBy = (runId: string) => children.filter(({ parentRunId }) => parentRunId === runId);
  const found: { level: number; child: ChildSession }[] = [];
  const walk = (runId: string, level: number): void => {
    for (const child of calledBy(runId)) {
      found.push({ level, child });
      walk(turnIdOf(child.session, 1), level + 1);
    }
  };
  walk(turnIdOf(session, seq), 1);
  return await Promise.all(
    found.slice(0, maxRows).map(async ({ level, child }) => {
      const [summary, open] = await Promise.all([
        store.summary(child.session).catch(() => undefined),
        child.endedAtMs === undefined ? approvals.pending(child.session) : [],
      ]);
      const own = open.filter(({ approval }) => approval.session === child.session);
      const working = calledBy(turnIdOf(child.session, 1)).filter(
        ({ endedAtMs }) => endedAtMs === undefined,
      );
      const usd = summary?.turn?.totals.costUsd ?? summary?.totals?.costUsd;
      return {
        level,
        child,
        summary,
        approvals: own,
        below: working.length,
        ...(usd === undefined ? {} : { usd }),
      };
    }),
  );
}

/** The run of the person's message, above its helpers. */
export async function readRoot(
  { eventLog }: Services,
  { session, seq, summary, approvals }: Standing,
  { atMs, diagnosis, helpers }: { atMs: number; diagnosis: Diagnosis; helpers: readonly TreeRow[] },
): Promise<TreeRow> {
  const turnId = turnIdOf(session, seq);
  const own = [summary, ...summary.setAside].find(({ head }) => head?.seq === seq);
  const end = await endOf(eventLog, session, turnId);
  const done = end?.type === "done" ? end : undefined;
  const agent =
    own?.turn === undefined
      ? (done?.agent ?? own?.head?.message.agent ?? "default")
      : agentOfTurn(own.turn);
  const usd = own === undefined ? done?.totalCostUsd : own.turn?.totals.costUsd;
  const took = own === undefined && "ms" in diagnosis ? diagnosis.ms : undefined;
  const ended =
    took === undefined ? {} : { endedAtMs: atMs + took, isOk: diagnosis.is === "answered" };
  const { turn: _latest, ...rest } = summary;
  return {
    level: 0,
    child: { session, parentRunId: "", callId: "", as: agent, agent, beganAtMs: atMs, ...ended },
    ...(usd === undefined ? {} : { usd }),
    summary: { ...rest, ...(own?.turn === undefined ? {} : { turn: own.turn }) },
    approvals: approvals.filter(
      ({ approval }) => approval.session === session && approval.turnId === turnId,
    ),
    below: helpers.filter(({ level, child }) => level === 1 && child.endedAtMs === undefined)
      .length,
  };
}

/** Undefined where there are no helpers. */
export function treeSection(view: View, rows: readonly TreeRow[]): Html | undefined {
  if (!rows.some(({ level }) => level > 0)) return undefined;
  const { say, language } = view;
  const list = table({
    caption: say("helpers"),
    columns: [say("agent"), say("state"), say("waitsFor"), say("took"), say("cost")],
    rows: rows.map((row) => {
      const { child, level, usd } = row;
      const { beganAtMs, endedAtMs = view.nowMs } = child;
      const indent = level === 0 ? "" : `${"\u2003".repeat(level - 1)}↳ `;
      return [
        html`${indent}<a href="${sessionPath(child.session)}">${child.agent}</a>${
            child.as !== child.agent && html` <span class="quiet">${child.as}</span>`
          }`,
        say(stateOf(row)),
        waitsFor(view, row),
        durationText(language, Math.max(0, endedAtMs - beganAtMs)),
        usd === undefined ? "–" : view.money(usd),
      ];
    }),
  });
  return html`<h2>${say("helpers")}</h2>
    ${list}`;
}

function stateOf({ child, summary, approvals, below }: TreeRow): Word {
  if (child.endedAtMs !== undefined) {
    return child.isOk === true ? "outcomeAnswered" : "outcomeFailed";
  }
  if (summary === undefined) return "helperUnreadable";
  if (approvals.length > 0 || below > 0) return "helperWaits";
  return summary.state === "queued" ? "helperQueued" : "helperWorks";
}

/** People that it has asked, else the helpers or tools that have not answered. */
function waitsFor({ say }: View, { child, summary, approvals, below }: TreeRow): string {
  if (child.endedAtMs !== undefined) return "";
  const asked = approvals.map(({ approval: { kind, tool } }) =>
    kind === "question" ? say("anAnswer") : tool,
  );
  if (asked.length > 0) return `${say("aPerson")}: ${asked.join(", ")}`;
  if (below > 0) return `${say("helpers")}: ${below}`;
  const running = (summary?.turn?.calls ?? []).filter(({ state }) => state === "running");
  return running.map(({ name }) => name).join(", ");
}
