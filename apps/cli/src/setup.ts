import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { dirname } from "node:path";
import { consoleLink, permissionLink } from "@larkline/feishu/app-manifest";
import { AppInspector, missingScopes, type PanelEntry, registerApp } from "@larkline/feishu";
import type { Env } from "@larkline/process/config";
import { deadline, type Clock } from "@larkline/protocol/clock";
import { encode, renderUnicodeCompact } from "uqr";
import type { SetupOptions } from "./command-line.ts";
import {
  type Bilingual,
  domainProblem,
  readDeployment,
  readEnvFile,
  writeEnvFile,
} from "./config.ts";
import { botFinding, credentialFinding, panelFailure, permissionList } from "./feishu-check.ts";
import { checkPeopleScopes, readPeopleScopes } from "./people-scopes.ts";
import { type Finding, linesOf, ok, printable } from "./finding.ts";
import {
  checkConfigFile,
  namedBots,
  ofBot,
  panelOf,
  type CheckedBot,
  type Vendor,
} from "./local-checks.ts";
import {
  type Answers,
  askAll,
  feishuQuestions,
  type Interview,
  mayReplace,
  modelQuestions,
  type NoAnswer,
  type Prompt,
  replaced,
} from "./questions.ts";
import { checkModelKey } from "./service-checks.ts";

const checkMs = 5_000;
const failedCode = 1;
const interruptedCode = 130;

interface SetupInput {
  options: SetupOptions;
  /** Of the process; the file is read here. */
  env: Env;
  prompt: Prompt;
  signal: AbortSignal;
  /** Width of the terminal; 0 without one. */
  columns: number;
  clock: Clock;
}

interface Setup extends SetupInput {
  interview: Interview;
  say: (text: Bilingual) => void;
  report: (finding: Finding) => void;
}

function leave({ say }: Setup): number {
  say({ zh: "已取消，没有写入任何内容。", en: "Cancelled; nothing was written." });
  return interruptedCode;
}

function refuse({ say }: Setup, text: Bilingual): number {
  say({ zh: `${text.zh}没有写入任何内容。`, en: `${text.en} Nothing was written.`.trim() });
  return failedCode;
}

function unanswered(setup: Setup, why: NoAnswer): number {
  return why.kind === "left" ? leave(setup) : refuse(setup, why.text);
}

function tellMissing(
  { say }: Setup,
  granted: ReadonlySet<string>,
  app: { appId: string; domain: string },
): void {
  const missing = missingScopes(granted, ["required", "recommended"]).map(({ name }) => name);
  if (missing.length === 0) return;
  const link = permissionLink(app, missing);
  say({
    zh: `还没有开通的权限：${missing.join(", ")}\n开通：${link}`,
    en: `Scopes that are not granted yet: ${missing.join(", ")}\nGrant them: ${link}`,
  });
}

/** Whether the platform takes the credentials and the bot can be talked to. */
async function verifyApp(
  setup: Setup,
  app: { appId: string; appSecret: string; domain: string },
): Promise<boolean> {
  const inspector = new AppInspector({ ...app, timeoutMs: checkMs - 1_000, clock: setup.clock });
  const close = (): void => inspector.close();
  setup.signal.addEventListener("abort", close, { once: true });
  try {
    const bot = await inspector.bot(setup.signal);
    setup.report(botFinding(bot, app));
    // Good to know now, but no reason to stop: the doctor looks at them as well.
    const granted = await inspector.grantedScopes("tenant", setup.signal).catch(() => undefined);
    if (granted !== undefined) tellMissing(setup, granted, app);
    return !setup.signal.aborted;
  } catch (error) {
    if (!setup.signal.aborted) setup.report(credentialFinding(error, app));
    return false;
  } finally {
    setup.signal.removeEventListener("abort", close);
    inspector.close();
  }
}

/** Whether no vendor refuses its key. */
async function verifyModels({
  answers,
  setup,
}: {
  answers: Answers;
  setup: Setup;
}): Promise<boolean> {
  const vendors: readonly Vendor[] = ["anthropic", "openai"];
  const findings = await Promise.all(
    vendors.flatMap((vendor) => {
      const prefix = vendor.toUpperCase();
      const apiKey = answers[`${prefix}_API_KEY`];
      if (apiKey === undefined) return [];
      const baseUrl =
        setup.env[`${prefix}_BASE_URL`] || setup.interview.file.values[`${prefix}_BASE_URL`];
      const vendorAccess =
        baseUrl === undefined || baseUrl === "" ? { apiKey } : { apiKey, baseUrl };
      const signal = deadline(setup.clock, checkMs, setup.signal);
      return [checkModelKey(vendor, vendorAccess, signal)];
    }),
  );
  if (setup.signal.aborted) return false;
  for (const finding of findings) setup.report(finding);
  return findings.every(({ status }) => status !== "problem");
}

async function write(setup: Setup, answers: Answers): Promise<void> {
  const { path } = setup.interview.file;
  await writeEnvFile(path, answers);
  const names = Object.keys(answers).join(", ");
  setup.say({ zh: `已写入 ${path}：${names}`, en: `Written to ${path}: ${names}` });
}

/**
 * Registers the commands of every bot whose app is known, so that clients show them after a slash. A bot works
 * without: what fails is said, and no reason to stop.
 */
async function registerPanels(setup: Setup): Promise<void> {
  const { env, configFile, feishu } = await deploymentNow(setup);
  const { config, findings } = await checkConfigFile(setup.clock, configFile);
  if (config === undefined) {
    for (const finding of findings) setup.report(finding);
    return;
  }
  const first = feishu === undefined ? [] : [{ name: "default", access: feishu }];
  for (const bot of [...first, ...namedBots(env, config, feishu).bots]) {
    const found = await registerPanel(setup, bot, panelOf(bot.name, config));
    for (const finding of ofBot(bot.name, [found])) setup.report(finding);
  }
}

/** What was written just now counts, also where the shell still names another app. */
async function deploymentNow({ env: given, interview }: Setup) {
  const env = { ...given, ...(await readEnvFile(interview.file.path)).values };
  return { env, ...readDeployment(env) };
}

/** The scopes of people that the tools of running runners need, and the page where an administrator grants them. */
async function reportPeopleScopes(setup: Setup): Promise<void> {
  const { redisUrl, namespace, feishu: app } = await deploymentNow(setup);
  if (redisUrl === undefined || app === undefined) {
    setup.say({
      zh: "以个人身份执行的工具还需要用户权限：docs/zh/work-tools.md 列出了它们；有了 REDIS_URL，npm run doctor 会指出缺少哪些。",
      en: "Tools that act as people need scopes of people, too: docs/work-tools.md lists them; with REDIS_URL, npm run doctor names those that are missing.",
    });
    return;
  }
  const needed = await readPeopleScopes(setup.clock, { redisUrl, namespace }, checkMs);
  const inspector = new AppInspector({ ...app, timeoutMs: checkMs - 1_000, clock: setup.clock });
  try {
    for (const finding of await checkPeopleScopes(inspector, app, needed)) setup.report(finding);
  } finally {
    inspector.close();
  }
}

async function registerPanel(
  setup: Setup,
  { access: app }: CheckedBot,
  wanted: readonly PanelEntry[],
) {
  const inspector = new AppInspector({ ...app, timeoutMs: checkMs - 1_000, clock: setup.clock });
  try {
    const { unknown } = await inspector.setPanel(wanted, setup.signal);
    const gone = unknown.map((name) => `/${name}`).join(", ");
    return ok("feishu.commands", {
      zh: `命令面板已登记 ${wanted.length} 个命令，客户端约 5 分钟后显示${gone === "" ? "" : `；已移除机器人没有的 ${gone}`}`,
      en: `The command panel has ${wanted.length} commands; clients show them after about five minutes${gone === "" ? "" : `; removed, not commands of the bot: ${gone}`}`,
    });
  } catch (error) {
    return panelFailure(error, app);
  } finally {
    inspector.close();
  }
}

function finish({ say }: Setup): number {
  say({
    zh: "接下来：npm run doctor 检查全部设置，npm start 启动。",
    en: "Next: npm run doctor checks everything, npm start starts it.",
  });
  return 0;
}

async function setUpManually(setup: Setup): Promise<number> {
  const { interview, options, prompt, signal } = setup;
  prompt.write(`${permissionList(options.language)}\n`);
  const answered = await askAll([...feishuQuestions, ...modelQuestions], interview);
  if (!answered.ok) return unanswered(setup, answered.why);
  const { answers } = answered;
  const allowed = await mayReplace(replaced(answers, interview.file), interview);
  if (allowed === null) return leave(setup);
  if (!allowed) return keepOld(setup, replaced(answers, interview.file));
  const {
    FEISHU_APP_ID: appId = "",
    FEISHU_APP_SECRET: appSecret = "",
    FEISHU_DOMAIN: domain = "feishu",
  } = answers;
  const accepted = await verifyApp(setup, { appId, appSecret, domain });
  const modelsAccepted = accepted && (await verifyModels({ answers, setup }));
  if (signal.aborted) return leave(setup);
  if (!accepted || !modelsAccepted) return refuse(setup, { zh: "", en: "" });
  await write(setup, answers);
  await registerPanels(setup);
  await reportPeopleScopes(setup);
  return finish(setup);
}

function keepOld(setup: Setup, names: readonly string[]): number {
  const list = names.join(", ");
  return refuse(setup, {
    zh: `${list} 保持原值（非交互方式请加 --overwrite）。`,
    en: `${list} stay as they are (without questions: --overwrite).`,
  });
}

function showLink(
  { prompt, columns, say }: Setup,
  link: { url: string; expiresInMs: number },
): void {
  const code = scanCodeOf(link.url, columns);
  if (code !== undefined) prompt.write(`${code}\n`);
  const minutes = Math.max(1, Math.round(link.expiresInMs / 60_000));
  say({
    zh: `用飞书扫码，或在浏览器中打开链接，确认创建应用（${minutes} 分钟内有效）：\n${link.url}`,
    en: `Scan with Feishu, or open the link in a browser, and confirm the new app (within ${minutes} min):\n${link.url}`,
  });
}

/** What a new app sets. */
const appVariables = ["FEISHU_APP_ID", "FEISHU_APP_SECRET", "FEISHU_DOMAIN", "FEISHU_TRANSPORT"];
const newTransport = "websocket";

async function register(setup: Setup, domain: string) {
  return await registerApp({
    domain,
    name: "Larkline",
    signal: setup.signal,
    clock: setup.clock,
    onLink: (link) => showLink(setup, link),
  });
}

type NotCreated = Exclude<Awaited<ReturnType<typeof register>>, { kind: "created" }>;

function notCreated(setup: Setup, outcome: NotCreated): number {
  if (outcome.kind === "cancelled") return leave(setup);
  const texts: Readonly<Record<"denied" | "expired" | "failed", Bilingual>> = {
    denied: { zh: "创建被拒绝。", en: "The app was refused." },
    expired: {
      zh: "链接已过期，请重新运行 npm run setup。",
      en: "The link has expired: run npm run setup again.",
    },
    failed: {
      zh: `无法创建应用（${"reason" in outcome ? outcome.reason : ""}）：请用 npm run setup -- --manual。`,
      en: `The app cannot be created (${"reason" in outcome ? outcome.reason : ""}): use npm run setup -- --manual.`,
    },
  };
  return refuse(setup, texts[outcome.kind]);
}

/** The secret is not shown here; the developer console shows it to the app's owner. */
function notWritten(
  { say, interview }: Setup,
  { error, link }: { error: unknown; link: string },
): number {
  const reason = error instanceof Error ? error.message : String(error);
  say({
    zh: `应用已创建，但无法写入 ${interview.file.path}（${reason}）：请从 ${link} 复制凭证，再运行 npm run setup -- --manual。`,
    en: `The app exists, but ${interview.file.path} cannot be written (${reason}): copy its credentials from ${link} and run npm run setup -- --manual.`,
  });
  return failedCode;
}

/** What is asked comes before the app exists; its secret is written before anything else is done with it. */
async function setUpByLink(setup: Setup): Promise<number> {
  const { interview, options, env } = setup;
  const { values } = interview.file;
  const domain =
    options.answers["FEISHU_DOMAIN"] ||
    env["FEISHU_DOMAIN"]?.trim() ||
    values["FEISHU_DOMAIN"] ||
    "feishu";
  if (domainProblem(domain) !== undefined) {
    return refuse(setup, { zh: "FEISHU_DOMAIN 无效。", en: `${domainProblem(domain)}` });
  }
  const held = appVariables.filter(
    (name) => !["", domain, newTransport].includes(values[name] ?? ""),
  );
  const allowed = await mayReplace(held, interview);
  if (allowed === null) return leave(setup);
  if (!allowed) return keepOld(setup, held);
  const models = await askAll(modelQuestions, interview);
  if (!models.ok) return unanswered(setup, models.why);
  const changed = replaced(models.answers, interview.file);
  const mayChange = await mayReplace(changed, interview);
  if (mayChange === null) return leave(setup);
  if (!mayChange) return keepOld(setup, changed);
  const accepted = await verifyModels({ answers: models.answers, setup });
  if (setup.signal.aborted) return leave(setup);
  if (!accepted) return refuse(setup, { zh: "", en: "" });
  await access(dirname(interview.file.path), constants.W_OK);
  const created = await register(setup, domain);
  if (created.kind !== "created") return notCreated(setup, created);
  const app = {
    FEISHU_APP_ID: created.appId,
    FEISHU_APP_SECRET: created.appSecret,
    FEISHU_DOMAIN: created.domain,
  };
  try {
    await write(setup, { ...app, FEISHU_TRANSPORT: newTransport, ...models.answers });
  } catch (error) {
    return notWritten(setup, { error, link: `${consoleLink(created)}/baseinfo` });
  }
  await verifyApp(setup, created);
  await registerPanels(setup);
  await reportPeopleScopes(setup);
  return finish(setup);
}

/** Connects an app; the exit code of the command. Rejects when the file cannot be read or written. */
export async function setUp(input: SetupInput): Promise<number> {
  const { options, env, prompt } = input;
  const { language } = options;
  const interview: Interview = { options, env, prompt, file: await readEnvFile(options.envFile) };
  const setup: Setup = {
    ...input,
    interview,
    say: (text) => prompt.write(`${printable(text[language])}\n`),
    report: (finding) => prompt.write(`${linesOf(finding, language).join("\n")}\n`),
  };
  return options.manual ? await setUpManually(setup) : await setUpByLink(setup);
}

// As narrow as scanners take: the link of a registration then fits into 80 columns.
const border = 1;

/** The link as a code for a terminal of this width; undefined when it does not fit. */
export function scanCodeOf(link: string, columns: number): string | undefined {
  const { size } = encode(link, { border });
  return size <= columns ? renderUnicodeCompact(link, { border }) : undefined;
}
