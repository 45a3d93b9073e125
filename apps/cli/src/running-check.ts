import { nearestName, type LarklineConfig } from "@larkline/process/config";
import { readResultName } from "@larkline/store";
import { ok, problem, skipped, warning, type Finding } from "./finding.ts";

/** A runner and the tools that its processes offer. */
export interface AnnouncedRunner {
  runner: string;
  instances: number;
  /** Absent: only known to be ready. */
  tools?: readonly string[];
}

/** What runs. Absent: it could not be found out. */
export interface Running {
  /** Whether the ingress of this machine is ready; absent: nobody answers there. */
  ingress?: boolean;
  workers?: number;
  runners?: readonly AnnouncedRunner[];
  /** Names of the tools that are offered, those of runners that are away for a moment too. */
  tools?: readonly string[];
}

/** Asks a process of this machine whether it is ready; undefined when nobody answers. */
export async function readyOf(url: string, signal: AbortSignal): Promise<boolean | undefined> {
  try {
    const response = await fetch(url, { signal, redirect: "error" });
    await response.body?.cancel();
    return response.status === 200;
  } catch {
    return undefined;
  }
}

function ingressFinding(ready: boolean | undefined): Finding {
  if (ready === true) return ok("running.ingress", { zh: "ingress 已就绪", en: "The ingress is ready" });
  if (ready === undefined) {
    return skipped("running.ingress", {
      zh: "本机没有 ingress，未检查",
      en: "No ingress on this machine, not checked",
    });
  }
  return problem(
    "running.ingress",
    { zh: "ingress 未就绪", en: "The ingress is not ready" },
    { zh: "查看它的日志；通常是 Redis 没有应答。", en: "See its log; usually Redis does not answer." },
  );
}

function workerFinding(workers: number | undefined): Finding {
  if (workers === undefined) {
    return skipped("running.workers", { zh: "agent-worker 未检查", en: "The agent-workers were not checked" });
  }
  if (workers > 0) {
    return ok("running.workers", { zh: `${workers} 个 agent-worker 在运行`, en: `${workers} agent-worker(s) alive` });
  }
  return problem(
    "running.workers",
    { zh: "没有运行中的 agent-worker，消息不会得到回答", en: "No agent-worker is alive: messages are not answered" },
    {
      zh: "启动一个 agent-worker，并核对它的 REDIS_URL 和 REDIS_NAMESPACE。",
      en: "Start an agent-worker, with this REDIS_URL and REDIS_NAMESPACE.",
    },
  );
}

function runnerFindings(runners: readonly AnnouncedRunner[] | undefined): Finding[] {
  if (runners === undefined) {
    return [skipped("running.runners", { zh: "tool-runner 未检查", en: "The tool-runners were not checked" })];
  }
  if (runners.length === 0) {
    return [
      warning(
        "running.runners",
        { zh: "没有 tool-runner，机器人无法使用工具", en: "No tool-runner is announced: the bot has no tools" },
        {
          zh: "启动一个 tool-runner，并核对它的 REDIS_URL 和 REDIS_NAMESPACE。",
          en: "Start a tool-runner, with this REDIS_URL and REDIS_NAMESPACE.",
        },
      ),
    ];
  }
  return runners.map(({ runner, instances, tools }) => {
    const list =
      tools === undefined ? { zh: "", en: "" } : { zh: `：${tools.join("、")}`, en: `: ${tools.join(", ")}` };
    return ok("running.runners", {
      zh: `tool-runner ${runner}（${instances} 个进程）${list.zh}`,
      en: `tool-runner ${runner} (${instances} process(es))${list.en}`,
    });
  });
}

/** Tools that agents name and no runner offers: a warning, since runners come and go. */
function toolFindings(tools: readonly string[] | undefined, config: LarklineConfig | undefined): Finding[] {
  if (config === undefined || tools === undefined) return [];
  const offered = [...tools, readResultName];
  const wanted = new Set(Object.values(config.agents).flatMap(({ tools: names }) => names ?? []));
  const missing = [...wanted].filter((tool) => !offered.includes(tool));
  if (missing.length === 0) return [];
  const zh = missing.map((tool) => `${tool}${near(tool, offered, (name) => `（是否指 ${name}？）`)}`).join("、");
  const en = missing.map((tool) => `${tool}${near(tool, offered, (name) => ` (did you mean ${name}?)`)}`).join(", ");
  return [
    warning(
      "running.tools",
      { zh: `配置的工具没有 tool-runner 提供：${zh}`, en: `No tool-runner offers the configured tools: ${en}` },
      {
        zh: "更正 larkline.config.ts 中的名称，或启动提供它们的 tool-runner（RUNNER_TOOLS）。",
        en: "Correct the names in larkline.config.ts, or start a tool-runner that offers them (RUNNER_TOOLS).",
      },
    ),
  ];
}

function near(tool: string, offered: readonly string[], words: (name: string) => string): string {
  const name = nearestName(tool, offered);
  return name === undefined ? "" : words(name);
}

/** Nothing at all is no problem of the deployment: it was not started. */
export function runningFindings(running: Running, config: LarklineConfig | undefined): Finding[] {
  const { ingress, workers = 0, runners = [] } = running;
  if (ingress === undefined && workers === 0 && runners.length === 0) {
    return [
      warning(
        "running",
        { zh: "Larkline 没有在运行", en: "Larkline is not running" },
        { zh: "运行 npm start。", en: "Run npm start." },
      ),
    ];
  }
  return [
    ingressFinding(ingress),
    workerFinding(running.workers),
    ...runnerFindings(running.runners),
    ...toolFindings(running.tools, config),
  ];
}
