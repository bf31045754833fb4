import clsx from "clsx";
import { type ReactNode, useId } from "react";
import { type ControlProps, FieldName, LabeledField } from "@/components/dispatch/LabeledField";
import type { Field } from "@/views/schemaForm";

interface SchemaFieldProps {
  field: Field;
  value: string;
  problem: string | undefined;
  onType: (text: string) => void;
}

export function SchemaField({ field, value, problem, onType }: SchemaFieldProps) {
  if (field.kind === "boolean") return <CheckboxField field={field} value={value} onType={onType} />;
  return (
    <LabeledField
      label={field.label}
      name={field.name}
      description={field.description}
      isRequired={field.required}
      problem={problem}
    >
      {(control) => controlOf(field, value, onType, control)}
    </LabeledField>
  );
}

function controlOf(
  field: Field,
  value: string,
  onType: (text: string) => void,
  { className, ...control }: ControlProps,
): ReactNode {
  const valueProps = { value, onChange: (event: { target: { value: string } }) => onType(event.target.value) };
  switch (field.kind) {
    case "choice":
      return (
        <select {...control} {...valueProps} className={className}>
          {!(field.required && field.hasDefault) && <option value="">{field.required ? "Choose…" : "(none)"}</option>}
          {field.choices.map((choice, index) => (
            <option key={index} value={String(index)}>
              {typeof choice === "string" ? choice : JSON.stringify(choice)}
            </option>
          ))}
        </select>
      );
    case "number":
    case "integer":
      return (
        <input
          {...control}
          {...valueProps}
          type="number"
          inputMode={field.kind === "integer" ? "numeric" : "decimal"}
          min={field.min ?? undefined}
          max={field.max ?? undefined}
          step={field.kind === "integer" ? 1 : "any"}
          className={className}
        />
      );
    case "prose":
      return (
        <textarea
          {...control}
          {...valueProps}
          rows={field.required ? 4 : 2}
          maxLength={field.maxLength ?? undefined}
          className={clsx(
            className,
            "field-sizing-content max-h-80",
            field.required ? "min-h-24 text-14/(--lh-prose)" : "min-h-9",
          )}
        />
      );
    case "array":
    case "object":
      return (
        <textarea
          {...control}
          {...valueProps}
          rows={3}
          spellCheck={false}
          placeholder={field.kind === "array" ? '["one", "two"]' : '{"name": "value"}'}
          className={clsx(className, "field-sizing-content max-h-80 min-h-16 font-mono text-12")}
        />
      );
    case "any":
      return (
        <textarea
          {...control}
          {...valueProps}
          rows={2}
          spellCheck={false}
          placeholder="Text or JSON"
          className={clsx(className, "field-sizing-content max-h-80 min-h-12")}
        />
      );
    default:
      return (
        <input
          {...control}
          {...valueProps}
          type="text"
          maxLength={field.maxLength ?? undefined}
          className={className}
        />
      );
  }
}

function CheckboxField({ field, value, onType }: Omit<SchemaFieldProps, "problem">) {
  const id = useId();
  return (
    <div className="flex flex-col gap-1">
      <label className="flex items-center gap-2 text-13 text-text">
        <input
          type="checkbox"
          checked={value === "true"}
          aria-describedby={field.description ? id : undefined}
          onChange={(event) => onType(String(event.target.checked))}
          className="size-4 accent-accent"
        />
        {field.label}
        <FieldName name={field.name} />
      </label>
      {field.description && (
        <p id={id} className="text-12 text-text-3">
          {field.description}
        </p>
      )}
    </div>
  );
}
