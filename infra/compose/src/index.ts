export { deploymentFiles, keptSecretsFile, type DeploymentFile } from "./deployment-files.ts";
export { services, settingsOf, type Service } from "./settings.ts";
