import {
  agentBounds,
  agentHash,
  narrowChange,
  type AgentBounds,
  type ChangeProblem,
} from "@larkline/process/config";
import { jsonParserOf, parserOf } from "@larkline/protocol";
import { AgentChange } from "@larkline/store/operations";
import type { AgentVersion } from "@larkline/store/operations";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { isDeepStrictEqual } from "node:util";
import { agentPath, operatorIn } from "./agents.ts";
import { diffBlock, diffOf } from "./diff.ts";
import { facts, html, type Html, type HtmlValue, moment } from "./html.ts";
import {
  actionForm,
  answerPage,
  countAction,
  fieldOf,
  order,
  type Page,
  type View,
} from "./page.ts";
import { usableModels } from "./models.ts";
import { select } from "./runs.ts";
import type { Services } from "./services.ts";
import type { Word } from "./words.ts";

// The page of one agent: its versions, and the form that makes the next one. Nothing is applied before its differences
// were shown. The checks of the form are those of the worker that makes the version.

const limitNames = [
  "maxIterations",
  "maxOutputTokens",
  "maxCallsPerStep",
  "toolTimeoutMs",
] as const;
const budgetNames = ["day.tokens", "day.usd", "month.tokens", "month.usd"] as const;

/** A form with instructions in Chinese, percent-encoded. */
const bodyLimit = 400_000;
const maxInstructions = 20_000;
const maxNote = 200;

interface OfAgent {
  Params: { agent: string };
}

/** Adds the page of each agent, with changing it. */
export function registerAgent(server: FastifyInstance, services: Services): void {
  const path = agentPath(":agent");
  server.get<OfAgent>(path, async (request, reply) =>
    answerPage(services, request, reply, async (view) =>
      agentPage(view, await shownAgent(services, request)),
    ),
  );
  server.post<OfAgent>(`${path}/preview`, { bodyLimit }, async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const shown = await shownAgent(services, request);
      return shown && agentPage(ownView(view, shown), shown, draftIn(request, shown));
    }),
  );
  server.post<OfAgent>(`${path}/back`, async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const shown = await shownAgent(services, request);
      const number = Number(fieldOf(request, "version"));
      const change =
        number === 0 ? {} : shown?.versions.find((version) => version.number === number)?.change;
      if (shown?.bounds === undefined || change === undefined) return undefined;
      const { counts } = narrowChange(shown.bounds, change);
      return agentPage(ownView(view, shown), shown, {
        ...draftOf(shown.bounds, counts),
        wanted: counts,
      });
    }),
  );
  server.post<OfAgent>(`${path}/apply`, { bodyLimit }, async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const change = parseChange(fieldOf(request, "change", bodyLimit) ?? "");
      const base = Number(fieldOf(request, "base"));
      const note = fieldOf(request, "note", maxNote) ?? "";
      const { agent } = request.params;
      if (!change.ok || !Number.isSafeInteger(base) || base < 0) return undefined;
      const act = {
        do: "change_agent",
        agent,
        base,
        change: change.value,
        ...(note === "" ? {} : { note }),
      } as const;
      const { word, isDone } = await order(services, view, act, orderWords);
      if (isDone) countAction(services, "agent_changed", agentPath(agent));
      if (isDone) return { to: agentPath(agent), note: word };
      const shown = await shownAgent(services, request);
      if (shown?.bounds === undefined) return undefined;
      const draft = { ...draftOf(shown.bounds, change.value, note), wanted: change.value };
      return agentPage(ownView(view, shown), shown, draft, word);
    }),
  );
}

const orderWords = {
  done: "isApplied",
  nothing: "notAllowedByFile",
  not_possible: "notAllowedByFile",
  conflict: "wasChangedMeanwhile",
  full: "tooManyVersions",
} as const;

const parseChange = jsonParserOf(AgentChange);
const checkChange = parserOf(AgentChange);

/** What the page shows of an agent. */
interface Shown {
  name: string;
  /** What the file gives it; undefined where the file does not have it. */
  bounds: AgentBounds | undefined;
  isChangeable: boolean;
  /** Tools that there are. */
  tools: string[];
  /** The newest first. */
  versions: AgentVersion[];
  refused: ReadonlySet<number>;
  /** The one that counts; undefined: it is as in the file. */
  present: AgentVersion | undefined;
  /** Number of the last version; 0: none. */
  head: number;
}

async function shownAgent(
  { settings, agentVersions, addedProviders, directory }: Services,
  { params: { agent: name } }: FastifyRequest<OfAgent>,
): Promise<Shown | undefined> {
  const config = Object.hasOwn(settings.agents, name) ? settings.agents[name] : undefined;
  const [stored, added, tools] = await Promise.all([
    agentVersions.list(),
    addedProviders.list(),
    directory.tools(),
  ]);
  const versions = stored.versions.get(name) ?? [];
  if (config === undefined ? versions.length === 0 : config.team !== null) return undefined;
  const bounds = config && agentBounds(settings, config, usableModels(settings, added));
  const known = new Set(bounds?.tools ?? tools.keys());
  for (const tool of bounds?.tools === null ? (stored.inForce.get(name)?.change.tools ?? []) : []) {
    known.add(tool);
  }
  return {
    name,
    bounds,
    isChangeable: settings.changesAgents && bounds !== undefined,
    tools: [...known].toSorted(),
    versions,
    refused: new Set(
      stored.refused.filter(({ agent }) => agent === name).map(({ number }) => number),
    ),
    present: stored.inForce.get(name),
    head: stored.heads.get(name) ?? 0,
  };
}

/** After a form was sent: links of the page lead to the page itself. */
function ownView(view: View, { name }: Pick<Shown, "name">): View {
  return { ...view, url: agentPath(name) };
}

/** What the form holds, and what came of it. */
interface Draft {
  values: Readonly<Record<string, string>>;
  tools: ReadonlySet<string>;
  /** By field. */
  problems: ReadonlyMap<string, Problem>;
  /** The change that it asks for; undefined where fields are wrong, or it was not asked for yet. */
  wanted?: AgentChange;
}

type Problem = { word: Word; detail?: string };

/** The form of a change. */
function draftOf(bounds: AgentBounds, change: AgentChange, note = ""): Draft {
  const {
    instructions = bounds.instructions,
    model = "",
    tools,
    limits = {},
    budgets = {},
  } = change;
  const values: Record<string, string> = { instructions, model, note };
  for (const name of limitNames) values[`limits.${name}`] = textOf(limits[name]);
  for (const name of budgetNames) values[`budgets.${name}`] = textOf(budgetAt(budgets, name));
  return { values, tools: new Set(tools ?? [anyTool]), problems: new Map() };
}

/** In the tools of a draft: all of them. */
const anyTool = "";

function textOf(value: number | undefined): string {
  return value === undefined ? "" : String(value);
}

function budgetAt(
  budgets: NonNullable<AgentChange["budgets"]>,
  name: (typeof budgetNames)[number],
): number | undefined {
  const [period, unit] = partsOf(name);
  return budgets[period]?.[unit];
}

function partsOf(name: (typeof budgetNames)[number]): ["day" | "month", "tokens" | "usd"] {
  return name.split(".") as ["day" | "month", "tokens" | "usd"]; // as they are named
}

/** Reads the form. What is as in the file is no part of the change. */
function draftIn({ body }: FastifyRequest, { bounds }: Shown): Draft | undefined {
  if (bounds === undefined || !(body instanceof URLSearchParams)) return undefined;
  const valueOf = (name: string): string => body.get(name) ?? "";
  const [instructions, model, note] = [
    valueOf("instructions").replaceAll("\r\n", "\n"),
    valueOf("model"),
    valueOf("note").trim().slice(0, maxNote),
  ];
  const [chosen, offered] = [body.getAll("tool"), body.getAll("shown")];
  // Of runners that are away no tools are shown: that all are ticked says nothing of those.
  const isEvery =
    offered.every((tool) => chosen.includes(tool)) &&
    (bounds.tools !== null || body.has("everyTool"));
  const isOther = instructions.trim() !== "" && instructions !== bounds.instructions;
  const numbers = numbersIn(body);
  const problems = new Map(numbers.problems);
  const change: AgentChange = {
    ...(isOther ? { instructions } : {}),
    ...(model === "" ? {} : { model }),
    ...(isEvery ? {} : { tools: chosen }),
    ...numbers.change,
  };
  if (isOther && instructions.length > maxInstructions) {
    problems.set("instructions", { word: "isTooLong" });
  }
  for (const problem of narrowChange(bounds, change).problems) {
    problems.set(problem.field, problemOf(problem));
  }
  const checked = checkChange(change);
  if (!checked.ok && problems.size === 0) {
    problems.set("", { word: "badRequest", detail: ` ${checked.error}` });
  }
  const values = { instructions, model, note, ...numbers.values };
  const tools = new Set(isEvery ? [anyTool] : chosen);
  return { values, tools, problems, ...(problems.size === 0 ? { wanted: change } : {}) };
}

/** Limits and budgets of the form. */
function numbersIn(body: URLSearchParams) {
  const change: Pick<AgentChange, "limits" | "budgets"> = {};
  const problems = new Map<string, Problem>();
  const values: Record<string, string> = {};
  const numberAt = (field: string, isValid: (value: number) => boolean): number | undefined => {
    const text = (body.get(field) ?? "").trim().slice(0, 20);
    values[field] = text;
    const number = Number(text);
    if (text === "" || isValid(number)) return text === "" ? undefined : number;
    problems.set(field, { word: "isNoNumber" });
    return undefined;
  };
  for (const name of limitNames) {
    const wanted = numberAt(`limits.${name}`, (value) => Number.isSafeInteger(value) && value >= 1);
    if (wanted !== undefined) change.limits = { ...change.limits, [name]: wanted };
  }
  for (const name of budgetNames) {
    const [period, unit] = partsOf(name);
    const isAmount = unit === "tokens" ? Number.isSafeInteger : Number.isFinite;
    const wanted = numberAt(`budgets.${name}`, (value) => isAmount(value) && value >= 0);
    if (wanted === undefined) continue;
    change.budgets = {
      ...change.budgets,
      [period]: { ...change.budgets?.[period], [unit]: wanted },
    };
  }
  return { change, problems, values };
}

function problemOf({ kind, detail }: ChangeProblem): Problem {
  return { word: kind === "above_file" ? "isAboveFile" : "isNotOffered", detail };
}

function agentPage(
  view: View,
  shown: Shown | undefined,
  draft?: Draft,
  note?: Word,
): Page | undefined {
  if (shown === undefined) return undefined;
  const { say } = view;
  const { bounds, name, isChangeable, present } = shown;
  const isOperator = view.visitor?.role === "operator";
  const state = isChangeable
    ? "changesAre"
    : bounds === undefined
      ? "agentIsGone"
      : "changesAreOff";
  const body = html`<p class="quiet">${say(state)}</p>
    ${present !== undefined && bounds !== undefined && warnings(view, present, bounds)}
    ${draft !== undefined && bounds !== undefined && previewOf(view, { ...shown, bounds }, draft)}
    ${
      isChangeable &&
      isOperator &&
      bounds !== undefined &&
      formOf(
        view,
        { ...shown, bounds },
        draft ?? draftOf(bounds, narrowChange(bounds, present?.change ?? {}).counts),
      )
    }
    ${versionList(view, shown)}`;
  const problem = draft !== undefined && draft.problems.size > 0 ? "fieldsAreWrong" : undefined;
  const said = note ?? problem;
  return { title: `${say("agent")} ${name}`, body, ...(said === undefined ? {} : { note: said }) };
}

/** What the file has changed under the version that is in force. */
function warnings({ say }: View, version: AgentVersion, bounds: AgentBounds): HtmlValue {
  const { problems } = narrowChange(bounds, version.change);
  if (problems.length === 0 && version.file === agentHash(bounds)) return undefined;
  return html`<div class="note">
    <p>${say("fileHasChanged")}</p>
    ${
      problems.length > 0 &&
      html`<p>${say("doesNotCount")}:</p>
        <ul>
          ${problems.map((one) => html`<li>${labelOf({ say }, one.field)}: ${say(problemOf(one).word)}${one.detail}</li>`)}
        </ul>`
    }
  </div>`;
}

function labelOf({ say }: Pick<View, "say">, field: string): string {
  return field === "instructions" || field === "model" || field === "tools"
    ? say(field)
    : say(field as Word); // of agentWords
}

type Bounded = Shown & { bounds: AgentBounds };

/** What a change would do, and the button that does it. */
function previewOf(view: View, shown: Bounded, { wanted, values }: Draft): HtmlValue {
  const { say } = view;
  if (wanted === undefined) return undefined;
  const now = narrowChange(shown.bounds, shown.present?.change ?? {}).counts;
  const isSame = isDeepStrictEqual(now, wanted);
  const fields = {
    base: String(shown.head),
    change: JSON.stringify(wanted),
    note: values["note"] ?? "",
  };
  return html`<section>
    <h2>${say("changesToApply")}</h2>
    ${isSame ? html`<p role="status">${say("noDifference")}</p>` : differences(view, shown.bounds, now, wanted)}
    ${!isSame && actionForm(view, { path: `${agentPath(shown.name)}/apply`, label: "apply", fields })}
  </section>`;
}

/** The fields in which two changes of the file differ. */
function differences(
  view: View,
  bounds: AgentBounds,
  before: AgentChange,
  after: AgentChange,
): HtmlValue {
  const { say, visitor } = view;
  const [old, fresh] = [linesOf(view, bounds, before), linesOf(view, bounds, after)];
  const rows = [...fresh].flatMap(([field, lines]): [string, HtmlValue][] => {
    const diff = diffOf(old.get(field) ?? [], lines);
    if (diff.length === 0) return [];
    const isHidden = field === "instructions" && visitor?.role !== "operator";
    return [[labelOf(view, field), isHidden ? say("instructionsHidden") : diffBlock(diff)]];
  });
  return rows.length === 0
    ? html`<p>${say("noDifference")}</p>`
    : html`<div class="changes">${facts(rows)}</div>`;
}

/** What an agent is with a change, by field, as lines. */
function linesOf({ say }: View, bounds: AgentBounds, change: AgentChange): Map<string, string[]> {
  const {
    instructions = bounds.instructions,
    model = say("modelOfFile"),
    tools = bounds.tools,
  } = change;
  const lines = new Map([
    ["instructions", instructions.split("\n")],
    ["model", [model]],
    ["tools", tools === null ? [say("everyTool")] : tools.toSorted()],
  ]);
  for (const name of limitNames) {
    lines.set(`limits.${name}`, [String(change.limits?.[name] ?? bounds.limits[name])]);
  }
  for (const name of budgetNames) {
    const limit = budgetAt(change.budgets ?? {}, name) ?? budgetAt(bounds.budgets, name);
    lines.set(`budgets.${name}`, [limit === undefined ? say("noLimit") : String(limit)]);
  }
  return lines;
}

function formOf(view: View, { name, bounds, tools }: Bounded, draft: Draft): Html {
  const { say } = view;
  const { values, problems } = draft;
  return html`<form method="post" action="${agentPath(name)}/preview" class="filters change">
    <input type="hidden" name="csrf" value="${view.csrf}" />
    ${problemBeside(view, "", problems)}
    <div class="field wider">
      <label for="instructions">${say("instructions")}</label>
      <textarea
        id="instructions"
        name="instructions"
        rows="12"
        spellcheck="false"
        ${describedBy("instructions", problems)}
      >
${values["instructions"] ?? ""}</textarea>
      <span class="quiet" id="instructions-hint">${say("instructionsHint")}</span>
      ${problemBeside(view, "instructions", problems)}
    </div>
    <div class="field wider">
      ${select("model", say("model"), values["model"], [["", say("modelOfFile")], ...[...bounds.models, ...bounds.added].map((one) => [one, one] as const)])}
      <span class="quiet">${say("modelHint")}</span>
      ${problemBeside(view, "model", problems)}
    </div>
    ${toolBoxes(view, { tools, isBounded: bounds.tools !== null }, draft)}
    <fieldset class="field wider">
      <legend>${say("limits")}, ${say("budgets")}</legend>
      <span class="quiet">${say("limitsHint")}</span>
      <div class="numbers">
        ${limitNames.map((limit) => numberField(view, `limits.${limit}`, bounds.limits[limit], draft))}
        ${budgetNames.map((budget) => numberField(view, `budgets.${budget}`, budgetAt(bounds.budgets, budget), draft))}
      </div>
    </fieldset>
    <div class="field wider">
      <label for="note">${say("changeNote")}</label>
      <input id="note" name="note" maxlength="${maxNote}" value="${values["note"] ?? ""}" />
    </div>
    <div class="row"><button>${say("preview")}</button></div>
  </form>`;
}

function toolBoxes(
  view: View,
  { tools, isBounded }: { tools: readonly string[]; isBounded: boolean },
  draft: Draft,
): Html {
  const { say } = view;
  const isEvery = draft.tools.has(anyTool);
  return html`<fieldset class="field wider">
    <legend>${say("allowedTools")}</legend>
    ${isBounded && html`<span class="quiet">${say("toolsHint")}</span>`}
    <div class="boxes">
      ${
        !isBounded &&
        html`<label
          ><input type="checkbox" name="everyTool" ${isEvery && html`checked`} />
          ${say("laterTools")}</label
        > `
      }
      ${tools.map(
        (tool) =>
          html`<label
            ><input type="hidden" name="shown" value="${tool}" /><input
              type="checkbox"
              name="tool"
              value="${tool}"
              ${(isEvery || draft.tools.has(tool)) && html`checked`}
            />
            ${tool}</label
          > `,
      )}
    </div>
    ${problemBeside(view, "tools", draft.problems)}
  </fieldset>`;
}

function numberField(
  view: View,
  field: string,
  most: number | undefined,
  { values, problems }: Draft,
): Html {
  const { say } = view;
  return html`<div class="field">
    <label for="${field}">${labelOf(view, field)} (${most ?? say("noLimit")})</label>
    <input
      id="${field}"
      name="${field}"
      inputmode="decimal"
      maxlength="20"
      value="${values[field] ?? ""}"
      ${describedBy(field, problems)}
    />
    ${problemBeside(view, field, problems)}
  </div>`;
}

function describedBy(field: string, problems: Draft["problems"]): HtmlValue {
  return problems.has(field) && html`aria-invalid="true" aria-describedby="${field}-problem"`;
}

function problemBeside({ say }: View, field: string, problems: Draft["problems"]): HtmlValue {
  const problem = problems.get(field);
  return (
    problem &&
    html`<span class="wrong" id="${field}-problem"
      >${say(problem.word)}${problem.detail ?? ""}</span
    >`
  );
}

/** Every version with its differences to the one before; the newest first. */
function versionList(view: View, shown: Shown): Html {
  const { say } = view;
  const { versions, refused, present, bounds, name, isChangeable } = shown;
  const unreadable = [...refused].filter((number) =>
    versions.every((version) => version.number !== number),
  );
  const back = (number: number): HtmlValue =>
    isChangeable &&
    view.visitor?.role === "operator" &&
    actionForm(view, {
      path: `${agentPath(name)}/back`,
      label: "goBackTo",
      fields: { version: String(number) },
    });
  const rows = versions.map((version) => {
    const { number, by, atMs, note = "" } = version;
    const isPresent = version === present;
    return html`<li>
      <details>
        <summary>
          ${say("version")} ${number}, ${operatorIn(by)},
          ${moment(view, atMs)}${note !== "" && `: ${note}`}
          ${isPresent && html`<span class="pill answered">${say("presentVersion")}</span>`}
        </summary>
        ${refused.has(number) && html`<p class="wrong">${say("versionIsRefused")}</p>`}
        ${bounds !== undefined && toTheOneBefore(view, { ...shown, bounds }, version)}
        ${!isPresent && !refused.has(number) && back(number)}
      </details>
    </li>`;
  });
  return html`<section>
    <h2>${say("versions")}</h2>
    ${unreadable.map((number) => html`<p class="wrong">${say("version")} ${number}: ${say("versionIsRefused")}</p>`)}
    ${
      versions.length === 0
        ? html`<p class="quiet">${say("noVersions")}</p>`
        : html`<ul class="plain versions">
            ${rows}
            <li>${say("asInFile")} ${present !== undefined && back(0)}</li>
          </ul>`
    }
  </section>`;
}

function toTheOneBefore(
  view: View,
  { bounds, versions }: Bounded,
  { number, change }: AgentVersion,
): HtmlValue {
  const before = number === 1 ? {} : versions.find((one) => one.number === number - 1)?.change;
  if (before === undefined) return html`<p class="quiet">${view.say("versionBeforeIsGone")}</p>`;
  return differences(view, bounds, before, change);
}
