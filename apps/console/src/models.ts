import {
  addedModelNames,
  addedProviderProblem,
  isKnownModel,
  type AddedProviderProblem,
  type LarklineConfig,
} from "@larkline/process/config";
import { parserOf } from "@larkline/protocol";
import { AddedProvider, type OrderResult } from "@larkline/store/operations";
import { sealProviderKey, type ListedProvider } from "@larkline/store/operations";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { operatorIn } from "./agents.ts";
import { facts, html, type Html, type HtmlValue, moment } from "./html.ts";
import {
  actionForm,
  answerPage,
  confirmPage,
  countAction,
  fieldOf,
  order,
  slowPageMs,
  type Page,
  type View,
} from "./page.ts";
import { select } from "./runs.ts";
import type { Services } from "./services.ts";
import type { Word } from "./words.ts";

// Servers of models, for operators: those of the file and the environment, and those that they add here. A key goes from
// the form into a box that only workers open, and is in nothing that the console stores, shows or logs.

export const modelsPath = "/models";

interface OfServer {
  Params: { name: string };
}

/** Adds the page of models: adding, testing and removing them. */
export function registerModels(server: FastifyInstance, services: Services): void {
  const at = (view: View): View => ({ ...view, url: modelsPath });
  server.get(modelsPath, async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const state = await stateOf(services);
      const wanted = new URL(request.url, "http://console").searchParams.get("change");
      const found = state.added.find(({ provider }) => provider.name === wanted);
      return modelsPage(view, state, { draft: found && draftOf(found.provider) });
    }),
  );
  server.post(`${modelsPath}/set`, async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const state = await stateOf(services);
      const { draft, wanted } = draftIn(request, state);
      if (wanted === undefined) return modelsPage(at(view), state, { draft });
      const { provider, key } = wanted;
      const sealedKey =
        key === "" || state.sealTo === undefined
          ? undefined
          : sealProviderKey(state.sealTo, provider, key, services.random);
      const sealed = sealedKey === undefined ? {} : { sealedKey };
      const act = { do: "set_provider", provider, ...sealed } as const;
      const { word, isDone, result } = await order(services, view, act, orderWords);
      if (isDone) {
        countAction(services, "provider_set", modelsPath);
        return { to: modelsPath, note: word };
      }
      const shown = { draft, note: word, detail: result?.agents };
      return modelsPage(at(view), await stateOf(services), shown);
    }),
  );
  server.get<OfServer>(`${modelsPath}/:name/remove`, async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const { name } = request.params;
      const { added } = await stateOf(services);
      if (!isOperator(view) || added.every(({ provider }) => provider.name !== name)) {
        return undefined;
      }
      return confirmPage(view, {
        title: `${view.say("removeServer")}: ${name}`,
        texts: ["removeServerTexts"],
        path: removePath(name),
        label: "removeServer",
        back: modelsPath,
      });
    }),
  );
  server.post<OfServer>(`${modelsPath}/:name/remove`, async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const act = { do: "remove_provider", name: request.params.name } as const;
      const removal = await order(services, view, act, {
        ...orderWords,
        done: "serverRemoved",
        nothing: "noSuchServer",
      });
      if (removal.isDone) {
        countAction(services, "provider_removed", modelsPath);
        return { to: modelsPath, note: removal.word };
      }
      return modelsPage(at(view), await stateOf(services), {
        note: removal.word,
        detail: removal.result?.agents,
      });
    }),
  );
  const ofTest = { config: { pageMs: slowPageMs } };
  server.post(`${modelsPath}/test`, ofTest, async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const model = fieldOf(request, "model") ?? "";
      const act = { do: "test_model", ...(model === "" ? {} : { model }) } as const;
      const tested = await order(services, view, act, testWords);
      const test = tested.result?.test;
      const shown = test === undefined ? { note: tested.word } : { test };
      return modelsPage(at(view), await stateOf(services), shown);
    }),
  );
}

function removePath(name: string): string {
  return `${modelsPath}/${name}/remove`;
}

const orderWords = {
  done: "serverSaved",
  nothing: "serverNotPossible",
  not_possible: "serverNotPossible",
  in_use: "serverInUse",
  full: "tooManyServers",
} as const;

const testWords = { done: "testUnknown", nothing: "testUnknown", full: "testRuns" } as const;

/** What is known of servers and of the agents that use them. */
interface ModelState {
  settings: LarklineConfig;
  added: readonly ListedProvider[];
  /** The public key of workers; undefined: they keep no keys. */
  sealTo: string | undefined;
  /** Model to the agents that use it. */
  users: ReadonlyMap<string, string[]>;
}

async function stateOf({ settings, addedProviders, agentVersions }: Services): Promise<ModelState> {
  const [{ providers, sealTo }, { inForce }] = await Promise.all([
    addedProviders.list(),
    agentVersions.list(),
  ]);
  const users = new Map<string, string[]>();
  for (const { name, model, models } of Object.values(settings.agents)) {
    const version = settings.changesAgents ? inForce.get(name)?.change.model : undefined;
    const own = version ?? model ?? "";
    for (const one of new Set([...own.split(","), ...models].map((text) => text.trim()))) {
      if (one !== "") users.set(one, [...(users.get(one) ?? []), name]);
    }
  }
  return { settings, added: providers, sealTo, users };
}

/** Models of added servers that agents can be given now. */
export function usableModels(
  settings: LarklineConfig,
  { providers }: { providers: readonly ListedProvider[] },
): string[] {
  const used = providers.flatMap(({ provider, isRefused }) => (isRefused ? [] : [provider]));
  return addedModelNames(settings, used);
}

/** The form: what it holds, never the key, and what is wrong with it, by field. */
interface Draft {
  values: Readonly<Record<string, string>>;
  problems: ReadonlyMap<string, Word>;
}

function draftOf(provider: AddedProvider): Draft {
  const { name, type, baseUrl = "", models, contextWindow = "" } = provider;
  const values = { name, type, baseUrl, models: models.join("\n") };
  return { values: { ...values, contextWindow: String(contextWindow) }, problems: new Map() };
}

const noDraft: Draft = { values: { type: "openai" }, problems: new Map() };
const parseProvider = parserOf(AddedProvider);
const types = ["openai", "anthropic", "openai-responses"] as const;

const problemWords: Readonly<Record<AddedProviderProblem, readonly [field: string, word: Word]>> = {
  not_allowed: ["", "serverNotPossible"],
  in_file: ["name", "nameInFile"],
  no_address: ["baseUrl", "wrongAddress"],
  no_https: ["baseUrl", "wrongAddress"],
  private_host: ["baseUrl", "privateAddress"],
};

/** Reads the form. `wanted`: what it asks for, where nothing is wrong. */
function draftIn(
  request: FastifyRequest,
  { settings, sealTo }: ModelState,
): { draft: Draft; wanted?: { provider: AddedProvider; key: string } } {
  const textOf = (name: string): string => (fieldOf(request, name, 10_000) ?? "").trim();
  const values = {
    name: textOf("name"),
    type: textOf("type"),
    baseUrl: textOf("baseUrl"),
    models: textOf("models").replaceAll("\r\n", "\n"),
    contextWindow: textOf("contextWindow"),
  };
  const key = textOf("key");
  const models = values.models.split("\n").flatMap((line) => line.trim() || []);
  const provider = {
    name: values.name,
    type: types.find((type) => type === values.type) ?? "openai",
    ...(values.baseUrl === "" ? {} : { baseUrl: values.baseUrl }),
    models: [...new Set(models)],
    ...(values.contextWindow === "" ? {} : { contextWindow: Number(values.contextWindow) }),
  };
  const problems = new Map<string, Word>();
  const problem = addedProviderProblem(settings, provider);
  if (problem !== undefined) problems.set(...problemWords[problem]);
  if (key.length > 4_000 || /\s/.test(key)) problems.set("key", "wrongKey");
  if (key !== "" && sealTo === undefined) problems.set("key", "noGrantKey");
  for (const [field, word] of schemaWords) {
    const isWrong = !problems.has(field) && !isRight(provider, field);
    if (isWrong) problems.set(field, word);
  }
  const draft = { values, problems };
  return problems.size === 0 ? { draft, wanted: { provider, key } } : { draft };
}

const schemaWords = [
  ["name", "wrongName"],
  ["baseUrl", "wrongAddress"],
  ["models", "wrongModels"],
  ["contextWindow", "isNoNumber"],
] as const;

const right: AddedProvider = { name: "a", type: "openai", models: ["a"] };

function isRight(provider: AddedProvider, field: keyof AddedProvider): boolean {
  return parseProvider({ ...right, [field]: provider[field] ?? right[field] }).ok;
}

interface Shown {
  draft?: Draft | undefined;
  note?: Word;
  /** Agents that the note names. */
  detail?: readonly string[] | undefined;
  test?: NonNullable<OrderResult["test"]>;
}

function isOperator({ visitor }: View): boolean {
  return visitor?.role === "operator";
}

function modelsPage(view: View, state: ModelState, shown: Shown): Page {
  const { say } = view;
  const title = say("models");
  if (!isOperator(view)) return { title, body: html`<p role="alert">${say("viewersLook")}</p>` };
  const { settings, added, sealTo } = state;
  const isOn = settings.modelHosts !== undefined;
  const { note, detail = [], test, draft } = shown;
  const body = html`${
      note !== undefined && html`<p class="note" role="status">${say(note)}${detail.join(", ")}</p>`
    }
    ${test !== undefined && testNote(view, test)}
    <p class="quiet">${say("modelsAre")}</p>
    ${!isOn && offNote(view)}
    ${isOn && sealTo === undefined && html`<p class="note">${say("noGrantKey")}</p>`}
    <section>
      <h2>${say("modelOfWorkers")}</h2>
      ${testButton(view, "")}
    </section>
    ${configuredSections(view, state)} ${added.map((one) => addedSection(view, state, one))}
    ${isOn && formOf(view, draft ?? noDraft)}`;
  return { title, body };
}

function offNote({ say }: View): Html {
  return html`<div class="note">
    <p>${say("modelsAreOff")}</p>
    <pre><code>console: { changes: true, models: true },</code></pre>
  </div>`;
}

const testProblems: Readonly<Record<string, Word>> = {
  api_auth_error: "testAuth",
  api_rate_limit: "testBusy",
  api_overloaded: "testBusy",
  api_bad_request: "testRefused",
  timeout: "testTimeout",
  unreachable: "testBroken",
  unknown_model: "testUnknown",
};

function testNote({ say, language }: View, test: NonNullable<OrderResult["test"]>): Html {
  const { model, answer, code = "", message = "", tookMs } = test;
  const seconds = new Intl.NumberFormat(language, { maximumFractionDigits: 1 }).format(
    tookMs / 1_000,
  );
  const took = html`<span class="quiet">${say("testSeconds")}: ${seconds}</span>`;
  return answer === undefined
    ? html`<p class="note" role="alert">
        <code>${model}</code> ${say("testFailed")}${say(testProblems[code] ?? "testRefused")}
        <q>${message}</q> ${took}
      </p>`
    : html`<p class="note" role="status">
        <code>${model}</code> ${say("testAnswers")}<q>${answer}</q> ${took}
      </p>`;
}

/** Those of the file and of the environment, as far as agents name their models. */
function configuredSections(view: View, { settings, users }: ModelState): Html[] {
  const { say } = view;
  const named = [...users.keys()].map((model) => model.split("/", 1)[0] ?? "");
  const builtIn = types.filter((type) => named.includes(type));
  const { providers } = settings;
  const ofEnvironment = builtIn.map((name) =>
    serverSection(view, name, {
      rows: [
        [say("from"), say("fromEnvironment")],
        [say("modelInterface"), name],
      ],
      models: modelsOf(users, name).map((model) => ({ model, type: name })),
      state: { settings, users },
    }),
  );
  const ofFile = Object.entries(providers).map(([name, { type, baseUrl, keyEnv }]) =>
    serverSection(view, name, {
      rows: [
        [say("from"), say("fromFile")],
        [say("modelInterface"), type ?? say("ofModule")],
        [say("address"), addressOf(view, baseUrl)],
        [say("apiKey"), keyEnv === undefined ? say("keyNone") : `${say("keyInVariable")}${keyEnv}`],
      ],
      models: modelsOf(users, name).map((model) => ({ model, type: name })),
      state: { settings, users },
    }),
  );
  return [...ofEnvironment, ...ofFile];
}

/** The models of a server that agents name. */
function modelsOf(users: ModelState["users"], provider: string): string[] {
  return [...users.keys()].filter((model) => model.startsWith(`${provider}/`)).toSorted();
}

function addedSection(
  view: View,
  { settings, users }: ModelState,
  { provider, key, by, atMs, isRefused }: ListedProvider,
): Html {
  const { say } = view;
  const { name, type, baseUrl, models } = provider;
  const problem = addedProviderProblem(settings, provider);
  const warning: Word | undefined =
    problem === "in_file"
      ? "serverIsCovered"
      : problem !== undefined
        ? "serverIsNotAllowed"
        : isRefused
          ? "serverIsRefused"
          : undefined;
  const keyWords = { none: "keyNone", sealed: "keySealed", old: "keyIsOld" } as const;
  return serverSection(view, name, {
    rows: [
      [say("from"), html`${say("addedBy")}${operatorIn(by)}, ${moment(view, atMs)}`],
      [say("modelInterface"), type],
      [say("address"), addressOf(view, baseUrl)],
      [say("apiKey"), say(keyWords[key])],
    ],
    models: models.map((id) => ({ model: `${name}/${id}`, type })),
    state: { settings, users },
    warning,
    actions: html`<div class="row">
      ${problem !== "in_file" && html`<a href="${modelsPath}?change=${name}#server">${say("changeIt")}</a>`}
      <a href="${removePath(name)}">${say("removeServer")}</a>
    </div>`,
  });
}

function addressOf({ say }: View, baseUrl: string | undefined): HtmlValue {
  return baseUrl === undefined ? say("vendorsOwn") : html`<code>${baseUrl}</code>`;
}

interface ServerShown {
  rows: readonly (readonly [string, HtmlValue])[];
  models: readonly { model: string; type: string }[];
  state: Pick<ModelState, "settings" | "users">;
  warning?: Word | undefined;
  actions?: Html;
}

function serverSection(
  view: View,
  name: string,
  { rows, models, state: { settings, users }, warning, actions }: ServerShown,
): Html {
  const { say } = view;
  return html`<section>
    <h2>${name}</h2>
    ${warning !== undefined && html`<p><span class="wrong">${say(warning)}</span></p>`}
    ${facts(rows)}
    <ul class="plain">
      ${models.map(({ model, type }) => {
        const agents = users.get(model) ?? [];
        const isPriced = isKnownModel(type, model.slice(name.length + 1), settings.models);
        return html`<li class="row">
          <code>${model}</code>
          ${warning === undefined && testButton(view, model)}
          ${!isPriced && html`<span class="quiet">${say("pricesUnknown")}</span>`}
          ${agents.length > 0 && html`<span>${say("usedBy")}: ${agents.join(", ")}</span>`}
        </li>`;
      })}
    </ul>
    ${actions}
  </section>`;
}

function testButton(view: View, model: string): Html {
  return actionForm(view, { path: `${modelsPath}/test`, label: "testIt", fields: { model } });
}

function formOf(view: View, { values, problems }: Draft): Html {
  const { say } = view;
  const interfaces = [
    ["openai", say("interfaceOpenai")],
    ["anthropic", say("interfaceAnthropic")],
    ["openai-responses", say("interfaceResponses")],
  ] as const;
  const hintOf = (name: string, hint: Word | undefined): HtmlValue =>
    hint !== undefined && html`<span class="quiet" id="${name}-hint">${say(hint)}</span>`;
  const wrongOf = (name: string): HtmlValue => {
    const word = problems.get(name);
    return word && html`<span class="wrong" id="${name}-problem">${say(word)}</span>`;
  };
  const aria = (name: string): Html =>
    problems.has(name)
      ? html`aria-invalid="true" aria-describedby="${name}-problem"`
      : html`aria-describedby="${name}-hint"`;
  const line = (name: string, label: Word, hint: Word): Html =>
    html`<div class="field wider">
      <label for="${name}">${say(label)}</label>
      <input
        id="${name}"
        name="${name}"
        value="${values[name] ?? ""}"
        maxlength="500"
        spellcheck="false"
        autocomplete="off"
        ${aria(name)}
      />
      ${hintOf(name, hint)} ${wrongOf(name)}
    </div>`;
  return html`<section id="server">
    <h2>${say("addServer")}</h2>
    <form method="post" action="${modelsPath}/set" class="filters change">
      <input type="hidden" name="csrf" value="${view.csrf}" />
      ${wrongOf("")} ${line("name", "serverName", "serverNameHint")}
      <div class="field wider">
        ${select("type", say("modelInterface"), values["type"], interfaces)}
      </div>
      ${line("baseUrl", "address", "addressHint")}
      <div class="field wider">
        <label for="models">${say("modelIds")}</label>
        <textarea id="models" name="models" rows="3" spellcheck="false" ${aria("models")}>
${values["models"] ?? ""}</textarea>
        ${hintOf("models", "modelIdsHint")} ${wrongOf("models")}
      </div>
      ${line("contextWindow", "contextWindow", "contextWindowHint")}
      <div class="field wider">
        <label for="key">${say("apiKey")}</label>
        <input
          id="key"
          name="key"
          type="password"
          maxlength="4000"
          autocomplete="new-password"
          ${aria("key")}
        />
        ${hintOf("key", "apiKeyHint")} ${wrongOf("key")}
      </div>
      <div class="row"><button>${say("save")}</button></div>
    </form>
  </section>`;
}
